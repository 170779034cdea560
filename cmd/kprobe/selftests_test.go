package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"kprobe/internal/fixture"
)

// TestKernelSelftests has the behaviours of the kernel's own tests of probe
// events, tools/testing/selftests/ftrace/test.d, in a process: one script for
// each, both outputs asserted. The kernel's function is clone_it for
// kernel_clone, make_dir for tracefs_create_dir; the module is a library.
//
//	kprobe/add_and_remove, busy_check, probepoint, profile    by their names
//	kprobe/kprobe_args, kretprobe_args, kretprobe_entry_arg   args
//	kprobe/kprobe_args_NAME, kprobe_NAME, kretprobe_NAME      NAME
//	kprobe/kprobe_ftrace                                      two_traces
//	kprobe/multiple_kprobes                                   insn_boundary
//	kprobe/uprobe_syntax_errors                               syntax_errors
//	dynevent/add_remove_kprobe, add_remove_uprobe             by their names
//	dynevent/generic_clear_event, clear_select_events         clear_events
//	dynevent/dynevent_limitations, test_duplicates            limitations, duplicates
//
// Those that mean nothing in a process:
//
//	dynevent/*btf*                    BTF describes the kernel; a program's types are DWARF's
//	dynevent/*eprobe*, *tprobe*       events on the kernel's own events and tracepoints
//	dynevent/*fprobe*                 fprobes are the function tracer's; p and r probes do their work
//	dynevent/add_remove_synth         synthetic events are made by triggers of the kernel
//	of kprobe_syntax_errors           @+10 is an error of kprobes only: a file's offset has a meaning here;
//	                                  the longest argument is that of a line in tracefs
//	                                  p:GROUP/ is an event whose name is made, as in newer kernels
//	of uprobe_syntax_errors           @symbol is an error of uprobes only: a process has symbols
//	of kprobe_opt_types               the switch in /proc/sys/debug is --no-optimize
//	of kretprobe_maxactive            a:EVENT is a place in the module "a": p may be left out
//	of kprobe_module                  that a module's events are kept while it is gone is in the tests of
//	                                  kept events
//
// Beside the commands of TestScripts there are
//
//	accepts FUNC FILE   each line is an argument of a probe of the function
//	refuses FUNC FILE   none is
//	carets FILE         each line is a definition that is refused; the caret of the
//	                    message is below what follows the line's ^
func TestKernelSelftests(t *testing.T) {
	bin := filepath.Dir(program(t))
	loop := fixture.Build(t, "cli_loop.c", "-O1")
	other := filepath.Join(fixture.Root(), "testdata", "sym_other.c")
	prog := fixture.Build(t, "cli_selftest.c", "-O1", other, "-ldl")
	lib := fixture.Build(t, "cli_module.c", "-O1", "-shared", "-fPIC")
	testscript.Run(t, testscript.Params{
		Dir:      "testdata/selftests",
		Deadline: time.Now().Add(deadline),
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+":"+e.Getenv("PATH"))
			e.Setenv("PROG", prog)
			e.Setenv("NAMED", prog) // as a definition names it
			e.Setenv("LOOP", loop)
			e.Setenv("LIB", lib)
			e.Setenv("KPROBE_EVENTS", filepath.Join(e.WorkDir, "kept", "events"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"signal": send, "await": await, "pid": pid,
			"accepts": accepts, "refuses": refuses, "carets": carets,
		},
	})
}

func accepts(ts *testscript.TestScript, _ bool, args []string) {
	for line := range strings.Lines(ts.ReadFile(args[1])) {
		ts.Check(ts.Exec("kprobe", "add", "-x", ts.Getenv("PROG"), "p:good "+args[0]+" "+strings.TrimSuffix(line, "\n")))
		if err := ts.ReadFile("stderr"); err != "" {
			ts.Fatalf("%s: %s", line, err)
		}
		ts.Check(ts.Exec("kprobe", "del", "good"))
	}
}

func refuses(ts *testscript.TestScript, _ bool, args []string) {
	for line := range strings.Lines(ts.ReadFile(args[1])) {
		if err := ts.Exec("kprobe", "add", "-x", ts.Getenv("PROG"), "p:bad "+args[0]+" "+strings.TrimSuffix(line, "\n")); err == nil {
			ts.Fatalf("%s was accepted", line)
		}
		if err := ts.ReadFile("stderr"); !strings.HasPrefix(err, "kprobe: ") || !strings.HasSuffix(withoutHint(err), "^\n") || ts.ReadFile("stdout") != "" {
			ts.Fatalf("%s: %s", line, err)
		}
	}
}

// withoutHint is a message without the line that says what to write instead.
func withoutHint(message string) string {
	before, _, _ := strings.Cut(message, "kprobe: hint: ")
	return before
}

func carets(ts *testscript.TestScript, _ bool, args []string) {
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		line = strings.TrimSuffix(line, "\n")
		before, after, ok := strings.Cut(line, "^")
		if !ok {
			ts.Fatalf("no caret in %s", line)
		}
		if err := ts.Exec("kprobe", "add", "-x", ts.Getenv("PROG"), before+after); err == nil {
			ts.Fatalf("%s was accepted", line)
		}
		want := "\n  " + before + after + "\n  " + strings.Repeat(" ", len(before)) + "^\n"
		if err := ts.ReadFile("stderr"); !strings.HasPrefix(err, "kprobe: ") || !strings.Contains(err, want) || ts.ReadFile("stdout") != "" {
			ts.Fatalf("%s: got\n%s\nwant%s", line, err, want)
		}
	}
}
