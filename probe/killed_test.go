package probe

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// buildKprobe builds the command.
func buildKprobe(t testing.TB) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "kprobe")
	cmd := exec.Command(fixture.NeedTool(t, "go"), "build", "-o", out, "./cmd/kprobe")
	cmd.Dir = fixture.Root()
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build kprobe: %v\n%s", err, text)
	}
	return out
}

// command is a running kprobe: the supervisor and, once it is there, the tracer.
type command struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr output
	done   chan struct{}
	killed string // what kill has found
}

// output is what a command prints, to be read while it does.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func startKprobe(t *testing.T, bin string, args ...string) *command {
	t.Helper()
	c := &command{t: t, cmd: exec.Command(bin, args...), done: make(chan struct{})}
	c.start()
	return c
}

func (c *command) start() {
	c.t.Helper()
	if c.cmd.Stderr == nil {
		c.cmd.Stderr = &c.stderr
	}
	// A tracer that outlives its supervisor must not hold this test's pipes.
	c.cmd.WaitDelay = patient
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() { defer close(c.done); _ = c.cmd.Wait() }()
	c.t.Cleanup(func() { _ = c.cmd.Process.Kill(); <-c.done })
}

// ended reports whether supervisor and tracer have ended.
func (c *command) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *command) front() int { return c.cmd.Process.Pid }

// tracer is the supervisor's child; ok is false while or if there is none. What a process has as its parent
// is sure. The lists of children are not: a thread of the supervisor's may end while they are read.
func (c *command) tracer() (pid int, ok bool) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" || fields[1] != strconv.Itoa(c.front()) {
			continue
		}
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && n > pid {
			pid, ok = n, true
		}
	}
	return pid, ok
}

// kinds of killing.
const (
	killFront = iota
	killTracer
	killBoth
	killKinds
)

func (c *command) kill(kind int) {
	tracer, ok := c.tracer()
	c.killed = fmt.Sprintf("tracer %d (%v) of %d", tracer, ok, c.front())
	if kind == killBoth {
		// On a busy machine it might notice the tracer's end in between. It goes on for a
		// moment after kill(2) has returned.
		_ = syscall.Kill(c.front(), syscall.SIGSTOP)
		waitUntil(func() bool {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.front()))
			return err != nil || bytes.Contains(status, []byte("State:\tT")) || bytes.Contains(status, []byte("State:\tZ"))
		})
	}
	if kind != killFront && ok {
		_ = syscall.Kill(tracer, syscall.SIGKILL)
	}
	if kind != killTracer || !ok {
		_ = syscall.Kill(c.front(), syscall.SIGKILL)
		return
	}
	// Before the tracer the supervisor may have another child, by which Go's package
	// os learns whether the kernel gives descriptors of children (checkPidfd).
	waitUntil(func() bool {
		if pid, ok := c.tracer(); ok && pid != tracer {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return c.ended()
	})
}

// leftBehind tells what a process still carries of kprobe: "" is nothing.
func leftBehind(pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "the process is gone"
	}
	if !bytes.Contains(status, []byte("TracerPid:\t0\n")) {
		return "it is traced"
	}
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		return err.Error()
	}
	if len(maps) == 0 {
		return "the process has ended"
	}
	for _, m := range maps {
		if strings.Contains(m.Path, "memfd:kprobe") {
			return "memory of kprobe's is mapped"
		}
	}
	return ""
}

// waitUntil polls until ok holds, for much longer than it takes on a machine that has
// other work.
func waitUntil(ok func() bool) bool {
	for end := time.Now().Add(patient); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// TestKilled kills the command by SIGKILL at random moments: while it starts,
// attaches, arms, traces, leaves. Whoever is left takes the probes out; where
// nobody is, the program runs on over them, and Recover takes them out.
func TestKilled(t *testing.T) {
	bin := buildKprobe(t)
	prog := fixture.Build(t, "probe_forever.c", "-O2")
	rounds := 32
	if os.Getenv("KPROBE_TEST_FULL") == "1" {
		rounds = 1000
	}
	defs := []string{"p:in work a=$arg1 s=+0($arg2):string", "r100:out recurse v=$retval", "p:rec recurse n=$arg1",
		"p:mid table n=%di", "p:len libc:strlen s=+0($arg1):string", "r:text text v=$retval"}
	for _, optimize := range []bool{true, false} {
		for _, args := range [][]string{{"2"}, {"2", "block"}} {
			t.Run(fmt.Sprintf("%v-%s", optimize, strings.Join(args, "-")), func(t *testing.T) {
				sub := startSubject(t, prog, args...)
				rng := rand.New(rand.NewPCG(7, uint64(len(args))))
				call := append([]string{"trace", "-q", "-o", "/dev/null", "-p", strconv.Itoa(sub.pid())}, defs...)
				if !optimize {
					call = append(call, "--no-optimize")
				}
				start := time.Now()
				if text, err := exec.Command(bin, append(call, "-n", "5")...).CombinedOutput(); err != nil {
					t.Fatalf("not killed, it fails: %v\n%s", err, text)
				}
				span := time.Since(start) * 3 / 2
				memory := anonymousSize(t, sub.pid())
				found := 0
				for i := range rounds / 4 {
					kind := i % killKinds
					if killOnce(t, bin, call, sub.pid(), kind, span, rng) {
						found++
					}
					if t.Failed() {
						t.Fatalf("round %d, kind %d", i, kind)
					}
				}
				t.Logf("%d of %d kills left something to take out", found, rounds/4)
				if got := anonymousSize(t, sub.pid()); got != memory {
					t.Errorf("%d bytes without a file are mapped, and were %d before the kills", got, memory)
				}
				if got := sub.work(); got != "done 0" {
					t.Errorf("the program printed %q, want no round wrong", got)
				}
				sub.end()
			})
		}
	}
}

// killOnce reports whether the kill left something that Recover took out.
func killOnce(t *testing.T, bin string, call []string, pid, kind int, span time.Duration, rng *rand.Rand) (found bool) {
	t.Helper()
	c := startKprobe(t, bin, call...)
	time.Sleep(time.Duration(rng.Int64N(int64(span))))
	if rng.IntN(3) == 0 {
		_ = c.cmd.Process.Signal(syscall.SIGINT) // fails only if it has ended
		time.Sleep(time.Duration(rng.IntN(10_000)) * time.Microsecond)
	}
	c.kill(kind)
	<-c.done // the supervisor's end and the tracer's: both hold its standard error
	if kind == killBoth {
		if !waitUntil(func() bool { return !traced(pid) }) {
			t.Errorf("both killed, the program is still traced: %s", c.stderr.String())
		}
		time.Sleep(time.Duration(rng.IntN(5_000)) * time.Microsecond)
		pids, err := Recover(context.Background(), []int{pid})
		if err != nil {
			t.Errorf("recover: %v", err)
		}
		found = len(pids) > 0
	}
	if !waitUntil(func() bool { return leftBehind(pid) == "" }) {
		t.Errorf("long after the kill %s\n%s", leftBehind(pid), c.stderr.String())
		return found
	}
	checkClean(t, pid)
	return found
}

func traced(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !bytes.Contains(b, []byte("TracerPid:\t0\n"))
}

// TestKilledAtTrap kills kprobe again and again while breakpoints are hit all
// the time, one of them at a return with other code behind it: the trap that
// is being answered is neither lost, nor is the program's instruction.
func TestKilledAtTrap(t *testing.T) {
	bin := buildKprobe(t)
	sub := startSubject(t, fixture.Build(t, "hazard_nets.c", "-O2", "-lpthread"))
	for i := range full(12, 400) {
		kind := killTracer + i%2
		trace := newFile(t).Name()
		c := startKprobe(t, bin, "trace", "-q", "-o", trace, "--no-optimize", "-p", strconv.Itoa(sub.pid()), "p:w work+5", "p:s second+5", "r:r work", "p:b second")
		if !waitUntil(func() bool { st, err := os.Stat(trace); return err == nil && st.Size() > 0 }) {
			t.Fatalf("round %d: the trace stays empty: %s\n%s", i, c.stderr.String(), threadStates(sub.pid()))
		}
		c.kill(kind)
		<-c.done
		if kind == killBoth {
			if !waitUntil(func() bool { return !traced(sub.pid()) }) {
				t.Fatal("it is still traced")
			}
			if _, err := Recover(t.Context(), []int{sub.pid()}); err != nil {
				t.Fatalf("recover: %v", err)
			}
		}
		if s := leftBehind(sub.pid()); s != "" {
			t.Fatalf("round %d, after the kill: %s\n%s", i, s, c.stderr.String())
		}
		checkClean(t, sub.pid())
	}
	sub.line()
	sub.expect("set")
	runsOn(t, sub.pid())
	if got := sub.work(); got != "done 0 0 1 1" {
		t.Errorf("the program printed %q, want done 0 0 1 1", got)
	}
	sub.end()
}
