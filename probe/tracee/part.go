//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// How a process is let go of and seized again
//
//	traced   its threads are traced
//	leaving  Part has let go of the stopped threads. Threads that could not be stopped are let go
//	         of as they stop
//	parted   no thread is traced. The Process stays, with the descriptor of its memory and its
//	         scratch memory. Whatever needs a thread fails with ErrParted
//	traced   again, by Rejoin
//
// Nobody reports what the process does while it is parted. The caller finds out by Ended and
// Replaced.

var (
	// ErrParted says that nobody traces the process at the moment (Part).
	ErrParted = errors.New("process isn't traced now")
	// ErrNotNow says that the process can't be parted with at the moment: it is executing a
	// program, or another process runs in its memory.
	ErrNotNow = errors.New("process can't be let go of now")
)

// Part lets go of all threads, as Detach does, and keeps the process for Rejoin. prepare is
// called with the stopped threads before the first is let go of. If it fails, none is. Errors
// are ErrNotNow, ErrGone, *NotStoppedError, and prepare's; the process is then traced as
// before.
func (p *Process) Part(ctx context.Context, prepare func(stopped []*Thread) error) error {
	return p.tr.Do(func() error { return p.part(ctx, prepare) })
}

func (p *Process) part(ctx context.Context, prepare func(stopped []*Thread) error) error {
	switch {
	case p.gone.Load():
		return ErrGone
	case p.parted || p.parting:
		return nil
	case p.shares != nil || p.inVfork():
		return ErrNotNow
	}
	err := p.stopAll(ctx)
	if err == nil {
		err = p.readyToPart()
	}
	if err == nil {
		p.closeGuard(ctx)
		p.detaching = true
		err = prepare(p.stoppedThreads())
		p.detaching = false
	}
	if err != nil || p.gone.Load() {
		return errors.Join(err, p.resumeAll())
	}
	if p.start = procfs.StartTime(p.pid); p.fd == 0 {
		p.fd = openPidfd(p.pid)
	}
	p.parting = true
	return p.leaveStopped()
}

// readyToPart settles the pending events of stopped threads, or returns an error if that can't
// be done without a thread.
func (p *Process) readyToPart() error {
	for _, th := range p.Threads() {
		if ev := th.status >> 16; th.Stopped() && th.deferred && (ev == unix.PTRACE_EVENT_EXEC || ev == unix.PTRACE_EVENT_EXIT) {
			return ErrNotNow
		}
	}
	if p.settleAll() {
		return ErrGone
	}
	if len(p.Sharers()) > 0 || slices.ContainsFunc(p.Threads(), func(th *Thread) bool { return !th.Stopped() }) {
		return ErrNotNow
	}
	return nil
}

// left is called when the last thread of a process that is being left was let go of.
func (t *Tracer) left(p *Process) {
	if !p.parting {
		t.drop(p)
		return
	}
	delete(t.procs, p.pid)
	t.parted[p.pid] = p
	p.leaving, p.parting, p.parted = false, false, true
	p.keepsTraps, p.decisions = false, nil
	p.strays, p.strayWatches = 0, false
	p.trap.close()
}

// Parted reports whether nobody traces the process, or soon nobody will.
func (p *Process) Parted() bool { return p.parted || p.parting }

// Rejoin seizes the threads of a process that was parted with, and stops none of them. Errors
// are those of Tracer.Attach; the process stays parted then.
func (p *Process) Rejoin(ctx context.Context) error {
	return p.tr.Do(func() error {
		if err := p.rejoin(ctx); err != nil {
			return fmt.Errorf("attach to process %d again: %w", p.pid, err)
		}
		return nil
	})
}

func (p *Process) rejoin(ctx context.Context) error {
	t := p.tr
	switch {
	case p.gone.Load():
		return ErrGone
	case p.parting: // some threads are still to be left
		p.leaving, p.parting = false, false
	case !p.parted:
		return nil
	default:
		if p.Ended() {
			return ErrGone
		}
		if err := t.mayAttachSoon(ctx, p.pid); err != nil {
			return err
		}
		delete(t.parted, p.pid)
		t.procs[p.pid] = p
		p.parted = false
	}
	err := p.seizeAll(ctx)
	if err == nil && p.Ended() {
		err = ErrGone
	}
	if err == nil {
		err = p.seizeSharers(ctx)
	}
	if err == nil {
		return nil
	}
	for _, q := range p.Sharers() {
		err = errors.Join(err, q.Detach(context.WithoutCancel(ctx), nil))
	}
	p.parting = true
	if len(p.threads) == 0 {
		t.left(p)
		return err
	}
	return errors.Join(err, p.detach(context.WithoutCancel(ctx), nil))
}

// Ended reports whether a process that was parted with has ended since.
func (p *Process) Ended() bool {
	if p.tr.children[p.pid] {
		p.tr.reap(p.pid)
	}
	if _, ok := p.tr.reaped[p.pid]; ok {
		return true
	}
	return procfs.StartTime(p.pid) != p.start
}

// Forget drops a process that was parted with and has ended.
func (p *Process) Forget() error {
	return p.tr.Do(func() error {
		if p.parted {
			p.tr.drop(p)
		}
		return nil
	})
}

// Replaced must be called when a process has executed a program while it was parted with: what
// is known about its memory is void.
func (p *Process) Replaced() {
	p.closeMem()
	p.code, p.frame = 0, 0
	p.watches = nil
	p.trap.close()
}

// PeekOf reads memory of any process, as it is now. Errors are those of process_vm_readv(2);
// ESRCH says that the process has ended. Any goroutine may call it.
func PeekOf(pid int, b []byte, at symbols.Addr) error {
	n, e := vmReadLiving(pid, b, uint64(at))
	switch {
	case n == len(b):
		return nil
	case e == 0:
		e = unix.EFAULT // only some of the memory could be read
	}
	return fmt.Errorf("read memory of process %d at %v: %w", pid, at, e)
}

// Peek reads memory of a process, traced or not, as it is now: that of the program that it
// executed last. Any goroutine may call it.
func (p *Process) Peek(b []byte, at symbols.Addr) error {
	switch n, e := p.vmRead(b, uint64(at)); {
	case n == len(b):
		return nil
	case e == errLatePage:
		return p.late(at)
	default:
		return fmt.Errorf("read memory of process %d at %v: %w", p.pid, at, e)
	}
}
