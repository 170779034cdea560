package probe

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/probe/memory"
	"kprobe/symbols"
)

// cpuTime is what a process has used, in clock ticks; 0 when it is gone.
func cpuTime(pid int) (ticks int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}

// runsOn fails the test unless the process goes on working.
func runsOn(t *testing.T, pid int) {
	t.Helper()
	start := cpuTime(pid)
	gone := func() bool { _, err := os.Stat(procfs.Process(pid).Path("stat")); return err != nil }
	if !waitUntil(func() bool { return cpuTime(pid) > start+3 || gone() }) || gone() {
		t.Fatalf("it does not run on:\n%s", threadStates(pid))
	}
}

// fallbacksFit waits until the program's own handlers were laid under fallback handlers again,
// which a verbose kprobe tells.
func (c *command) fallbacksFit(sigs ...string) {
	c.t.Helper()
	for _, sig := range sigs {
		if !waitUntil(func() bool {
			return strings.Contains(c.said(), "the action of "+sig+" was laid under the fallback handler again")
		}) {
			c.t.Fatalf("no fallback handler answers %s:\n%s", sig, c.said())
		}
	}
}

// said is what kprobe has printed on standard error.
func (c *command) said() string {
	if f, ok := c.cmd.Stderr.(*os.File); ok {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			c.t.Fatal(err)
		}
		return string(b)
	}
	return c.stderr.String()
}

// newFile makes a file that goes with the test.
func newFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// prints waits until a trace has lines.
func prints(t *testing.T, path string) {
	t.Helper()
	if !waitUntil(func() bool { st, err := os.Stat(path); return err == nil && st.Size() > 0 }) {
		t.Fatal("the trace stays empty")
	}
}

// TestFallbackAgainGo starts a Go program under kprobe. Its runtime sets handlers
// for all signals once it runs. Both processes of kprobe are killed: the
// program runs on over the breakpoints, one of them at an instruction whose faults
// the runtime makes panics.
func TestFallbackAgainGo(t *testing.T) {
	bin := buildKprobe(t)
	prog := fixture.Build(t, "hazard_nets.go")
	args := append([]string{"trace", "-v", "-o", "/dev/null", "--no-optimize", "p:s main.sum a=$arg1"}, everyInstruction(t, prog, "main.nils")...)
	for _, left := range []int{killTracer, killBoth} {
		c := &command{t: t, cmd: exec.Command(bin, append(args, "--", prog)...), done: make(chan struct{})}
		// Not a pipe of c.cmd's: that ends with kprobe.
		r, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		out, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		// The program has the same, and outlives kprobe.
		c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = r, w, newFile(t)
		c.start()
		r.Close()
		w.Close()
		lines := bufio.NewReader(out)
		var pid int
		if line, err := lines.ReadString('\n'); err != nil || !scanned(line, &pid) {
			t.Fatalf("the program printed %q: %v\n%s", line, err, c.said())
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		runsOn(t, pid)
		c.fallbacksFit("SIGTRAP", "SIGSEGV")
		c.kill(left)
		<-c.done
		if !waitUntil(func() bool { return !traced(pid) }) {
			t.Fatal("it is still traced")
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%.3000s", c.said())
			}
		})
		runsOn(t, pid)
		if left == killBoth {
			if pids, err := Recover(context.Background(), []int{pid}); err != nil || len(pids) != 1 {
				t.Errorf("recovered %v: %v", pids, err)
			}
		}
		runsOn(t, pid)
		fallbacksLeft(t, pid)
		_ = in.Close()
		if line, err := lines.ReadString('\n'); err != nil || line != "done 0\n" {
			t.Errorf("the program printed %q (%v), want done 0", line, err)
		}
	}
}

func scanned(line string, pid *int) bool {
	_, err := fmt.Sscanf(line, "ready %d", pid)
	return err == nil
}

// fallbacksLeft checks that of kprobe at most the fallback handlers are left, whose two pages
// stay where a handler of the program's may go on to them.
func fallbacksLeft(t *testing.T, pid int) {
	t.Helper()
	if s := leftBehind(pid); s != "" {
		t.Errorf("afterwards %s", s)
	}
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, m := range maps {
		if m.Exec && m.IsFile() {
			compareText(t, pid, m)
		}
		if m.Exec && m.Path == "" {
			pages += int(m.End-m.Start) / memory.PageSize
		}
	}
	if pages > 1 {
		t.Errorf("%d executable pages without a file are left, want at most the fallback handlers'", pages)
	}
}

// TestFallbackAgain kills kprobe after the program has set handlers of its own,
// which go on to the fallback handler for what isn't theirs, as it was there first.
func TestFallbackAgain(t *testing.T) {
	bin := buildKprobe(t)
	prog := fixture.Build(t, "hazard_nets.c", "-O2", "-lpthread")
	for _, flag := range []string{"--no-optimize=false", "--no-optimize"} {
		sigs := []string{"SIGTRAP", "SIGSEGV"}
		if flag == "--no-optimize" {
			sigs = sigs[:1] // no detour that may fault
		}
		for _, kind := range []int{killTracer, killBoth} {
			t.Run(fmt.Sprint(flag, kind), func(t *testing.T) {
				sub := startSubject(t, prog)
				trace := newFile(t).Name()
				c := startKprobe(t, bin, "trace", "-v", "-o", trace, flag, "-p", fmt.Sprint(sub.pid()), "p:w work s=+0($arg2):string", "p:s second")
				prints(t, trace)
				sub.line()
				sub.expect("set")
				c.fallbacksFit(sigs...)
				c.kill(kind)
				<-c.done
				runsOn(t, sub.pid())
				if kind == killBoth {
					if pids, err := Recover(context.Background(), []int{sub.pid()}); err != nil || len(pids) != 1 {
						t.Errorf("recovered %v: %v", pids, err)
					}
				}
				runsOn(t, sub.pid())
				fallbacksLeft(t, sub.pid())
				if got := sub.work(); got != "done 0 0 1 1" {
					t.Errorf("the program printed %q, want done 0 0 1 1", got)
				}
				sub.end()
			})
		}
	}
}
