package probe

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// wholeTraces are programs whose whole trace is compared with gdb's: what is built,
// what it is told, and the functions of which every instruction is a place.
var wholeTraces = []struct {
	src   string
	flags []string
	args  []string
	funcs []string
}{
	{"probe_calls.c", []string{"-O2"}, []string{"work", "20"}, []string{"work"}},
	{"probe_calls.c", []string{"-O0"}, []string{"pair", "10"}, []string{"pair_sum"}},
	{"probe_calls.c", []string{"-O0"}, []string{"switch", "40"}, []string{"switcher"}},
	{"probe_calls.c", []string{"-O2"}, []string{"switch", "40"}, []string{"switcher"}},
	{"probe_calls.c", []string{"-O2"}, []string{"loops", "20"}, []string{"loops"}},
	{"probe_calls.c", []string{"-O2"}, []string{"recurse", "12"}, []string{"recurse"}},
	{"probe_calls.c", []string{"-O2"}, []string{"ping", "20"}, []string{"ping", "pong"}},
	{"probe_calls.c", []string{"-O2"}, []string{"indirect", "10"}, []string{"indirect", "red_zone", "work"}},
	{"probe_throw.cc", []string{"-O0"}, []string{"12"}, []string{"thrower"}},
	{"probe_throw.cc", []string{"-O2"}, []string{"12"}, []string{"thrower"}},
}

// registers that are printed at each hit, and what gdb calls them.
var gdbRegisters = []string{"ip", "ax", "cx", "dx", "si", "di", "sp"}

// TestTraceAgainstGDB runs a program once under gdb with a breakpoint on every
// instruction of some functions, and under kprobe with a probe there, as jumps
// where that can be and as breakpoints: the same hits in the same order, with
// the same registers.
func TestTraceAgainstGDB(t *testing.T) {
	gdb, setarch := fixture.NeedTool(t, "gdb"), fixture.NeedTool(t, "setarch")
	for _, p := range wholeTraces {
		t.Run(strings.Join(append(append([]string{}, p.flags...), p.args...), " "), func(t *testing.T) {
			prog := fixture.Build(t, p.src, append(p.flags, "-lpthread")...)
			var defs, breaks []string
			for _, fn := range p.funcs {
				for _, d := range everyInstruction(t, prog, fn) {
					at := strings.Fields(d)[1]
					def := fmt.Sprintf("p:e%d %s", len(defs), at)
					for _, r := range gdbRegisters {
						def += fmt.Sprintf(" %s=%%%s:x64", r, r)
					}
					defs = append(defs, def)
					name, off, _ := strings.Cut(at, "+")
					breaks = append(breaks, fmt.Sprintf("*((char*)%s+%s)", name, off))
				}
			}
			args := append([]string{"-R", prog}, p.args...)
			want := underGDB(t, gdb, startSubject(t, setarch, args...), breaks)
			if len(want) == 0 {
				t.Fatal("no hit under gdb")
			}
			for _, o := range []Options{{}, {NoOptimize: true}} {
				sub := startSubject(t, setarch, args...)
				l := attach(t, sub.pid(), o, defs...)
				sub.work()
				l.finish(sub.pid())
				sub.end()
				var got []string
				for _, line := range l.sink.all() {
					_, regs, _ := strings.Cut(line, " ")
					got = append(got, regs)
				}
				for i := range max(len(got), len(want)) {
					if i >= len(got) || i >= len(want) || got[i] != want[i] {
						t.Errorf("NoOptimize %v: hit %d of %d, gdb's %d:\n here %v\n gdb  %v", o.NoOptimize, i, len(got), len(want), at(got, i), at(want, i))
						break
					}
				}
			}
			t.Logf("%d hits at %d places", len(want), len(defs))
		})
	}
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "(none)"
}

var gdbHit = regexp.MustCompile(`^HIT (.*)$`)

// underGDB has the program do its work under gdb and gives a line for each hit.
func underGDB(t *testing.T, gdb string, sub *subject, breaks []string) (hits []string) {
	t.Helper()
	var script strings.Builder
	script.WriteString("set pagination off\nset confirm off\n")
	for _, b := range breaks {
		fmt.Fprintf(&script, "break %s\ncommands\nsilent\nprintf \"HIT", b)
		for _, r := range gdbRegisters {
			fmt.Fprintf(&script, " %s=0x%%lx", r)
		}
		script.WriteString("\\n\"")
		for _, r := range gdbRegisters {
			fmt.Fprintf(&script, ", $r%s", r)
		}
		script.WriteString("\ncontinue\nend\n")
	}
	script.WriteString("echo ARMED\\n\ncontinue\n")
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(gdb, "-nx", "-batch", "-p", fmt.Sprint(sub.pid()), "-x", path)
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timeout := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timeout.Stop()
	go func() { _ = cmd.Wait(); w.Close() }()
	var all strings.Builder
	for in := bufio.NewScanner(r); in.Scan(); {
		line := in.Text()
		all.WriteString(line + "\n")
		if line == "ARMED" {
			sub.line()
			go func() {
				// The second line lets it end, once it has done its work.
				if _, err := sub.out.ReadString('\n'); err == nil {
					_, _ = sub.in.Write([]byte("\n"))
				}
			}()
		}
		if m := gdbHit.FindStringSubmatch(line); m != nil {
			hits = append(hits, m[1])
		}
	}
	if !strings.Contains(all.String(), "exited with code 07") {
		t.Errorf("under gdb the program did not end well:\n%s", all.String())
	}
	return hits
}
