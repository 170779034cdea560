//go:build linux && amd64

package tracee

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// spawnJob starts a program in a process group of its own with its shell, whose
// parent is outside: the kernel drops SIGTSTP, SIGTTIN and SIGTTOU in groups that
// have no such parent, and the test's own may be one (setsid, a service).
func spawnJob(t testing.TB, path string, args ...string) *target {
	t.Helper()
	return spawnAs(t, &syscall.SysProcAttr{Setpgid: true}, path, args...)
}

func TestJobControl(t *testing.T) {
	g := spawnJob(t, events(t), "idle")
	state := func() string {
		return string(threadStates(g.pid))
	}
	check := func(what, want string) {
		t.Helper()
		eventually(t, what+": "+want, func() bool { return strings.Trim(state(), want) == "" })
	}
	eventually(t, "two threads", func() bool { return len(threadStates(g.pid)) == 2 })
	syscall.Kill(g.pid, syscall.SIGSTOP)
	check("stopped before the attach", "T")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	stop := running(t, tr, &recorder{t: t})
	do(t, tr, func() error {
		return p.WithStopped(context.Background(), func(ts []*Thread) error {
			if len(ts) != 2 {
				return fmt.Errorf("%d threads", len(ts))
			}
			n, err := p.Syscall(context.Background(), ts[1], syscall.SYS_GETTID)
			if err == nil && int(n) != ts[1].TID() {
				err = fmt.Errorf("gettid gave %d", n)
			}
			return err
		})
	})
	// A traced thread that listens shows t or T.
	check("stopped while attached", "tT")
	time.Sleep(20 * time.Millisecond)
	check("stopped while attached", "tT")
	syscall.Kill(g.pid, syscall.SIGCONT)
	check("continued", "SR")
	syscall.Kill(g.pid, syscall.SIGTSTP)
	check("stopped again", "tT")
	// Either may still be on its way from the signal to the group's stop.
	eventually(t, "both listen", func() bool {
		listen := true
		do(t, tr, func() error {
			for _, th := range p.Threads() {
				listen = listen && th.groupStop
			}
			return nil
		})
		return listen
	})
	do(t, tr, func() error { return p.Detach(context.Background(), nil) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	check("stopped after the detach", "T")
	syscall.Kill(g.pid, syscall.SIGCONT)
	check("continued after the detach", "SR")
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
}

// The shell's view is the right one: whenever the process is left, while signals
// of job control come and calls are injected, it ends up as the last of them says.
func TestDetachInJobControl(t *testing.T) {
	rounds := 40
	if os.Getenv("KPROBE_TEST_FULL") == "1" {
		rounds = 1000
	}
	for _, c := range []struct {
		name  string
		calls bool
		v     Verdict
	}{{"plain", false, Deliver}, {"calls", true, Deliver}, {"held", false, Step}, {"held, calls", true, Step}} {
		t.Run(c.name, func(t *testing.T) {
			g := spawnJob(t, events(t), "idle")
			eventually(t, "two threads", func() bool { return len(threadStates(g.pid)) == 2 })
			for round := range rounds {
				last := leaveInJobControl(t, g.pid, c.calls, c.v)
				want := "SRD"
				if last == syscall.SIGTSTP {
					want = "T"
				}
				is := func() bool { return strings.Trim(string(threadStates(g.pid)), want) == "" }
				for end := time.Now().Add(patient); !is(); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("round %d: the last was %v, and the threads are in %s", round, last, threadStates(g.pid))
					}
				}
				if time.Sleep(time.Millisecond); !is() {
					t.Fatalf("round %d: the last was %v, and the threads went on to %s", round, last, threadStates(g.pid))
				}
			}
			syscall.Kill(g.pid, syscall.SIGCONT)
			if _, status := g.rest(); status != 0 {
				t.Errorf("status %d", status)
			}
		})
	}
}

// leaveInJobControl attaches to a process, sends it signals of job control, and
// leaves it in the middle of them. It gives the one that was sent last.
func leaveInJobControl(t *testing.T, pid int, calls bool, v Verdict) (last syscall.Signal) {
	t.Helper()
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	p := attach(t, tr, pid)
	stop := running(t, tr, &recorder{t: t, sig: func(*Thread, *Siginfo) Verdict { return v }})
	sent := make(chan syscall.Signal)
	go func() {
		var last syscall.Signal
		for range 2 + rand.IntN(6) {
			last = syscall.SIGTSTP
			if rand.IntN(2) == 0 {
				last = syscall.SIGCONT
			}
			syscall.Kill(pid, last)
			spin(rand.IntN(300))
		}
		sent <- last
	}()
	call := func([]*Thread) error {
		if !calls {
			return nil
		}
		for _, th := range append(p.Threads(), nil) {
			if th != nil && !th.Stopped() {
				continue
			}
			if n, err := p.Syscall(context.Background(), th, syscall.SYS_GETPID); err != nil || int(n) != pid {
				return fmt.Errorf("getpid gave %d, %w", n, err)
			}
		}
		return nil
	}
	for range rand.IntN(3) {
		spin(rand.IntN(300))
		if err := p.WithStopped(context.Background(), call); err != nil {
			t.Error(err)
		}
	}
	spin(rand.IntN(300))
	if err := p.Detach(context.Background(), call); err != nil {
		t.Error(err)
	}
	last = <-sent
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	return last
}

// spin waits for so many microseconds without giving up the processor.
func spin(microseconds int) {
	for end := time.Now().Add(time.Duration(microseconds) * time.Microsecond); time.Now().Before(end); {
	}
}
