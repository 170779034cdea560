//go:build linux && amd64

package tracee

import (
	"context"
	"fmt"
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
