//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
)

// Stops, and injected calls, in the middle of a waiting system call must not
// show in its result.
func TestStopsLeakNoEINTR(t *testing.T) {
	exe := fixture.Build(t, "tracee_eintr.c", "-O1", "-lrt")
	for _, name := range []string{
		"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "nanosleep", "clock_nanosleep",
		"clock_nanosleep_abs", "futex", "recv_timeout", "recvmsg_timeout", "read_timeout", "recv", "send_timeout",
		"accept_timeout", "connect_timeout", "sigtimedwait", "sigwaitinfo", "sigsuspend", "pause", "semtimedop",
		"semop", "msgrcv", "io_getevents", "io_uring_enter", "pipe_read", "eventfd_read", "timerfd_read",
		"inotify_read", "signalfd_read", "tty_read", "wait4", "flock", "setlkw", "mq_timedreceive",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			free := spawn(t, exe, name)
			want, _ := free.rest()
			for _, inject := range []bool{false, true} {
				tr := newTracer(t)
				var g *target
				var p *Process
				for tries := 0; p == nil; tries++ {
					g = spawn(t, exe, name)
					time.Sleep(50 * time.Millisecond) // into the call, most likely
					var err error
					if p, err = tr.Attach(context.Background(), g.pid); err != nil {
						// A loaded machine: the wait was over.
						if !errors.Is(err, ErrGone) && !errors.Is(err, ErrZombie) || tries == 20 {
							t.Fatal(err)
						}
						g.rest()
					}
				}
				stop := running(t, tr, &recorder{t: t})
				for range 3 {
					err := tr.Do(func() error {
						return p.WithStopped(context.Background(), func(ts []*Thread) error {
							if !inject {
								return nil
							}
							_, err := p.Syscall(context.Background(), ts[0], 39)
							if errors.Is(err, ErrNoThread) && ts[0].status>>16 == unix.PTRACE_EVENT_EXIT {
								return ErrGone // a loaded machine: it is about to end
							}
							return err
						})
					})
					if errors.Is(err, ErrGone) {
						break // a loaded machine: the wait is over
					}
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(20 * time.Millisecond)
				}
				got, status := g.rest()
				if got != want || status != 0 {
					t.Errorf("inject %v: %q, status %d; untraced %q", inject, got, status, want)
				}
				stop()
			}
		})
	}
}
