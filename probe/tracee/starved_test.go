//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
)

// TestStarved makes a call in a process, and stops it, while its threads
// could run and get no processor for longer than others may take to be fit.
func TestStarved(t *testing.T) {
	g := spawn(t, events(t), "loop", "1")
	var tids []int
	for end := time.Now().Add(patient); len(tids) < 3 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		var err error
		if tids, err = tasks(g.pid); err != nil {
			t.Fatal(err)
		}
	}
	var one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !one.IsSet(cpu) {
		cpu++
	}
	one.Zero()
	one.Set(cpu)
	const highest = -20
	for _, tid := range tids {
		if err := unix.SchedSetaffinity(tid, &one); err != nil {
			t.Fatal(err)
		}
		if err := unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
			t.Fatal(err)
		}
	}
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	starve := func() (stop func()) {
		var all []*exec.Cmd
		for range 2 {
			c := exec.Command(fixture.NeedTool(t, "sh"), "-c", "while :; do :; done")
			fixture.Start(t, c)
			all = append(all, c)
			if err := unix.SchedSetaffinity(c.Process.Pid, &one); err != nil {
				t.Fatal(err)
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, c.Process.Pid, highest); err != nil {
				t.Fatal(err)
			}
		}
		return func() {
			for _, c := range all {
				_ = c.Process.Kill()
			}
		}
	}
	for name, do := range map[string]func() error{
		"call": func() error {
			_, err := p.Syscall(context.Background(), nil, unix.SYS_GETPID)
			return err
		},
		"stop": func() error {
			return p.WithStopped(context.Background(), func([]*Thread) error { return nil })
		},
		"signal": func() error { // which a process is left with
			return p.WithStopped(context.Background(), func(list []*Thread) error {
				th := list[0]
				time.AfterFunc(time.Second, starve())
				time.Sleep(100 * time.Millisecond)
				if err := unix.Tgkill(p.pid, th.tid, unix.SIGURG); err != nil {
					return err
				}
				if !th.leadOn() || th.status.StopSignal() != unix.SIGURG {
					return errors.New("the thread isn't at its signal")
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			stop := starve()
			time.AfterFunc(3*time.Second, stop)
			begun := time.Now()
			err := tr.Do(do)
			t.Logf("%s: %v after %v", name, err, time.Since(begun))
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := p.Detach(context.Background(), nil); err != nil {
		t.Error(err)
	}
}
