//go:build linux && amd64

package tracee

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// BareStops answers a program's own int3 instructions with the least work that a tracer must
// do: wait, read the registers, write them, continue the thread. It measures breakpoints, and
// traces nothing. If stepped isn't 0, the instruction after an int3 at that address is executed
// by a single step, which costs a second stop.
//
// BareStops returns once all threads are traced; threads that are born later are not. end lets
// go of the process, which must not be in the middle of calls. Any goroutine may call it, once.
// A signal that is sent to the process meanwhile is lost, so use it only on programs of your
// own.
//
// Errors of BareStops are ErrGone and ErrPermission; nothing is left behind then. end returns
// the error that ended tracing early, if any.
func BareStops(pid int, stepped uint64) (end func() error, err error) {
	b := &bareStops{pid: pid, stepped: stepped}
	ready, ended := make(chan error), make(chan error, 1)
	ownThread(func() {
		if err := b.seize(); err != nil {
			ready <- err
			return
		}
		ready <- nil
		ended <- b.serve()
	})
	if err := <-ready; err != nil {
		return nil, err
	}
	return func() error {
		b.ending.Store(true)
		// The tracer waits for a stop: this is one. Most programs ignore it.
		if e := unix.Tgkill(pid, pid, unix.SIGURG); e != nil && !errors.Is(e, unix.ESRCH) {
			return fmt.Errorf("wake the tracer of process %d: %w", pid, e)
		}
		return <-ended
	}, nil
}

type bareStops struct {
	pid     int
	stepped uint64
	ending  atomic.Bool
	place   placement
}

func (b *bareStops) seize() error {
	tids, err := tasks(b.pid)
	if err != nil {
		return fmt.Errorf("process %d: %w", b.pid, err)
	}
	for _, tid := range tids {
		switch e := seize(tid, 0); e {
		case 0:
		case syscall.EPERM:
			return fmt.Errorf("thread %d: %w", tid, ErrPermission)
		default:
			return fmt.Errorf("thread %d: %w: %w", tid, ErrGone, e)
		}
	}
	return nil
}

func (b *bareStops) serve() error {
	for {
		var status uint32
		tid, e := wait(-1, &status, 0)
		switch {
		case e == syscall.EINTR:
			continue
		case e == syscall.ECHILD: // all have ended
			return nil
		case e != 0:
			return fmt.Errorf("wait for process %d: %w", b.pid, e)
		}
		s := syscall.WaitStatus(status)
		if !s.Stopped() {
			continue
		}
		if s.StopSignal() != syscall.SIGTRAP {
			if b.ending.Load() {
				return nil
			}
			if e := ptrace(unix.PTRACE_CONT, tid, 0, 0); e != 0 && e != syscall.ESRCH {
				return fmt.Errorf("let thread %d go on: %w", tid, e)
			}
			continue
		}
		b.place.hit(tid, func() int {
			if cpu, ok := onlyCPU(tid); ok {
				return cpu
			}
			return -1
		})
		var r unix.PtraceRegs
		if e := getRegs(tid, &r); e != 0 {
			continue // it was killed
		}
		op := unix.PTRACE_CONT
		if r.Rip == b.stepped+1 {
			op = unix.PTRACE_SINGLESTEP
		}
		if e := setRegs(tid, &r); e != 0 {
			continue
		}
		if e := ptrace(op, tid, 0, 0); e != 0 && e != syscall.ESRCH {
			return fmt.Errorf("let thread %d go on: %w", tid, e)
		}
	}
}
