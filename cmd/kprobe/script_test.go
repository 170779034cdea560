package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"kprobe/internal/fixture"
)

// deadline is for all scripts together, which take 5 s on an idle machine of
// two CPUs. What runs then ends with "signal: killed".
const deadline = 6 * time.Minute

// TestScripts runs the scripts of testdata with the real program, built once:
// one file for each behaviour, both outputs asserted.
//
// Beside testscript's own commands there are
//
//	pids NAME          sets $NAME to the pid of the background program that wrote NAME.pid
//	objects FILE N     FILE is N lines of JSON objects
//	signal SIG PIDFILE sends a signal to the process whose number is in the file
//	await FILE TEXT    waits until the file contains the text
func TestScripts(t *testing.T) {
	bin := filepath.Dir(program(t))
	prog := fixture.Build(t, "cli_loop.c", "-O1")
	forms := fixture.Build(t, "usdt_forms.c", "-O1")
	copies := fixture.Build(t, "cli_copies.c", "-O1", "-ldl")
	module := fixture.Build(t, "cli_module.c", "-O1", "-shared", "-fPIC")
	govars := fixture.Build(t, "dwarf_vars.go")
	rate := fixture.Build(t, "cli_rate.c", "-O2")
	calls := fixture.Build(t, "cli_calls.c", "-O1", "-g", "-pthread")
	goroutines := fixture.Build(t, "cli_goroutines.go")
	inject := fixture.Build(t, "cli_inject.c", "-O1", "-pthread")
	starting := fixture.Build(t, "starting.c", "-O1")
	testscript.Run(t, testscript.Params{
		Dir:      "testdata",
		Deadline: time.Now().Add(deadline), // a trace that hangs fails, and is killed
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+":"+e.Getenv("PATH"))
			e.Setenv("LOOP", prog)
			e.Setenv("FORMS", forms)
			e.Setenv("RATE", rate)
			e.Setenv("CALLS", calls)
			e.Setenv("GOROUTINES", goroutines)
			e.Setenv("INJECT", inject)
			e.Setenv("STARTING", starting)
			e.Setenv("GOVARS", govars)
			e.Setenv("SOURCE", filepath.Join(fixture.Root(), "testdata", "cli_loop.c"))
			e.Setenv("COPIES", copies)
			e.Setenv("MODULE", module)
			e.Setenv("KPROBE_EVENTS", filepath.Join(e.WorkDir, "kept", "events"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"objects": objects,
			"signal":  send,
			"await":   await,
			"pid":     pid,
		},
	})
}

// built is the folder of the program, for all tests of this package.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// program builds kprobe once and returns its path.
func program(t testing.TB) string {
	t.Helper()
	tool := fixture.NeedTool(t, "go")
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "kprobe-cli-*"); built.err != nil {
			return
		}
		out, err := exec.Command(tool, "build", "-o", filepath.Join(built.dir, "kprobe"), ".").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "kprobe")
}

func TestMain(m *testing.M) {
	if os.Getenv(startsFor) != "" {
		os.Exit(startForPeak(os.Args[1:]))
	}
	status := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(status)
}

// objects checks a file of JSON objects, one on each line: objects FILE N TYPE.
func objects(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: objects FILE N TYPE")
	}
	n := 0
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			ts.Fatalf("%q: %v", line, err)
		}
		if o["type"] == args[2] {
			n++
		}
	}
	if fmt.Sprint(n) != args[1] {
		ts.Fatalf("%d objects of type %s, want %s", n, args[2], args[1])
	}
}

// pid waits for a file with a process's number and sets a variable to it:
// pid NAME FILE.
func pid(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: pid NAME FILE")
	}
	ts.Setenv(args[0], fmt.Sprint(readPID(ts, args[1])))
}

func readPID(ts *testscript.TestScript, name string) int {
	for range 12000 {
		var n int
		if text, err := os.ReadFile(ts.MkAbs(name)); err == nil && strings.HasSuffix(string(text), "\n") {
			if _, err := fmt.Sscan(string(text), &n); err == nil {
				return n
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	ts.Fatalf("%s never held a process's number", name)
	return 0
}

// await waits until a file contains a text: await FILE TEXT.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE TEXT")
	}
	for range 12000 {
		if text, err := os.ReadFile(ts.MkAbs(args[0])); err == nil && strings.Contains(string(text), args[1]) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	ts.Fatalf("%s never contained %q", args[0], args[1])
}

// send sends a signal to a process: signal NAME PID.
func send(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "QUIT": syscall.SIGQUIT}
	var n int
	if len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal NAME PID")
	}
	if _, err := fmt.Sscan(args[1], &n); err != nil {
		ts.Fatalf("%q is no process id", args[1])
	}
	if err := syscall.Kill(n, signals[args[0]]); (err != nil) != neg {
		ts.Fatalf("kill %d: %v", n, err)
	}
}
