//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Detach stops the process, lets prepare put its memory and threads in order, and leaves it:
// running, or stopped if job control has stopped it. Signals that were about to be delivered
// are delivered. A thread that has hit an int3 which prepare removed executes the original
// instruction. prepare may be nil. No Handler method is called for the process after that.
//
// Detach waits for threads that wait in the kernel, until ctx ends, or for half a minute if ctx
// has no deadline. Threads that wait for a vfork child are given up at once; if the process has
// no others, after a second in which events are handled as in Run. A thread that can't be
// stopped stays traced, and is left by Run as soon as it stops; *NotStoppedError names it (see
// Late). If prepare fails, the process is left nevertheless, and the error returned.
func (p *Process) Detach(ctx context.Context, prepare func(stopped []*Thread) error) error {
	return p.tr.Do(func() error { return p.detach(ctx, prepare) })
}

func (p *Process) detach(ctx context.Context, prepare func(stopped []*Thread) error) error {
	switch {
	case p.gone.Load():
		return ErrGone
	case p.parted:
		p.tr.drop(p)
		return nil
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(detachPatience)
	}
	if err := p.passVfork(deadline); err != nil {
		return err
	}
	p.hold()
	missing, err := p.stopThreads(deadline, time.Until(deadline))
	if err == nil {
		err = p.allStopped(missing)
	}
	if errors.Is(err, ErrGone) {
		p.reap()
		return err
	}
	if p.settleAll() {
		return ErrGone
	}
	p.closeGuard(ctx)
	if prepare != nil {
		p.detaching = true
		if perr := prepare(p.stoppedThreads()); perr != nil {
			err = perr
		}
	}
	if lerr := p.leaveStopped(); err == nil {
		err = lerr
	}
	return err
}

// leaveStopped lets go of the threads that are stopped, and of the others as they stop. The
// error is the first.
func (p *Process) leaveStopped() (err error) {
	p.leaving = true
	p.held = 0
	for _, th := range p.Threads() {
		if th.Stopped() {
			if lerr := p.tr.leave(th, th.deferred); lerr != nil && err == nil {
				err = lerr
			}
		}
	}
	p.tr.pauses.add(time.Since(p.since))
	return err
}

// passVfork handles events as Run does, for at most a second, while no thread of the process
// can be stopped because each waits for a vfork child. The child may itself wait to be
// continued. In a method of a Handler, and before the first Run, it does nothing.
func (p *Process) passVfork(deadline time.Time) error {
	if p.tr.handler == nil {
		return nil
	}
	if end := time.Now().Add(vforkPatience); end.Before(deadline) {
		deadline = end
	}
	cancel := func() {}
	defer func() { cancel() }()
	for waiting := false; p.inVfork() && time.Now().Before(deadline); {
		if !waiting {
			cancel, waiting = p.tr.wakeAt(stopGrace), true
		}
		if _, err := p.tr.once(0, nil); err != nil {
			return err
		}
	}
	if p.gone.Load() {
		return ErrGone
	}
	return nil
}

// inVfork reports whether every thread waits for a child that uses the process's memory, and no
// event is being handled.
func (p *Process) inVfork() bool {
	for _, th := range p.threads {
		if th.stopped || taskState(p.pid, th.tid) != 'D' || !th.AwaitsChild() {
			return false
		}
	}
	for _, th := range p.tr.threads {
		if th.busy {
			return false
		}
	}
	return len(p.threads) > 0
}

// settleAll settles the pending events of stopped threads. gone reports whether the process has
// ended by that.
func (p *Process) settleAll() (gone bool) {
	p.settleOwed()
	for _, th := range p.Threads() {
		if th.Stopped() && th.deferred {
			p.tr.settle(th)
		}
	}
	return p.gone.Load()
}

// settle handles the deferred event of a thread that won't be resumed here, as far as it
// concerns others than the thread itself.
func (t *Tracer) settle(th *Thread) {
	// Each of these fails only if the thread is gone.
	switch ev := int(th.status >> 16); ev {
	case unix.PTRACE_EVENT_CLONE, unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK:
		th.deferred = false
		_ = t.created(th, ev)
	case unix.PTRACE_EVENT_EXEC:
		th.deferred = false
		_ = t.executed(th)
	case unix.PTRACE_EVENT_EXIT:
		th.deferred = false
		t.exiting(th)
	case unix.PTRACE_EVENT_STOP:
		th.deferred = false
		th.settleStop()
		th.announced = true
	case 0:
		if th.stepping && th.status.StopSignal() == syscall.SIGTRAP && th.readSiginfo() == nil && th.endsStep() {
			th.deferred = false
			th.stepping = false
			t.handler.Stepped(th)
		} else if th.status.StopSignal()&0x80 == 0 && th.readSiginfo() == nil && th.si.comesAgain() {
			// Whether the fault was the program's or a detour's: from where the
			// thread is moved to it comes again, or there is none.
			th.deferred = false
		}
	}
}

// leave detaches one stopped thread, and drops its process after the last. If pending, the
// signal that stopped the thread is still to be delivered.
func (t *Tracer) leave(th *Thread, pending bool) error {
	p := th.p
	sig := syscall.Signal(0)
	if pending && th.status>>16 == 0 && th.status.StopSignal()&0x80 == 0 {
		sig = th.status.StopSignal()
		if len(th.owed) > 0 && th.inDelivery() && th.readSiginfo() == nil {
			th.swapOwed(sig)
		}
		if sig == syscall.SIGTRAP && th.readSiginfo() == nil {
			switch {
			case th.si.Code() == siKernel && th.staleBreakpoint():
				sig = 0
			case th.stepping && th.endsStep() || th.strayStep() && p.strayStep():
				sig = 0
			case th.isWatched():
				sig = 0
			}
		}
	}
	if sig != 0 && !th.inDelivery() && !th.backToDelivery(sig) {
		// An injected call has passed since the stop: the kernel takes no
		// signal from here any more, so it is sent anew.
		_ = unix.Tgkill(th.p.pid, th.tid, sig) // fails only if the thread is gone
		sig = 0
	}
	if sig == 0 && len(th.held) > 0 && th.inDelivery() {
		if setSiginfo(th.tid, &th.held[0]) == 0 {
			sig = th.held[0].Signal()
			th.held = th.held[1:]
		}
	}
	for i := range th.held {
		_ = unix.Tgkill(th.p.pid, th.tid, th.held[i].Signal())
	}
	err := th.setDebug(nil)
	if err == nil {
		err = th.lead(sig)
	}
	if err == nil {
		th.closeStep()
		th.closeTrap(sig)
		err = th.request(unix.PTRACE_DETACH, uintptr(sig))
	}
	if errors.Is(err, ErrGone) {
		// Killed in its stop: its end is still to be collected.
		var st uint32
		wait(th.tid, &st, unix.WNOHANG)
		err = nil
	}
	t.forget(th)
	if len(p.threads) == 0 {
		t.left(p)
	}
	return err
}

// DropSteps says how many threads an earlier, killed tracer was stepping. When the process is
// left, that many traps of steps are dropped instead of delivered.
func (p *Process) DropSteps(n int) { p.strays = n }

// DropWatched says that an earlier, killed tracer had threads watch memory. When the process is
// left, their traps are dropped instead of delivered.
func (p *Process) DropWatched() { p.strayWatches = true }

func (p *Process) strayStep() bool {
	p.strays--
	return p.strays >= 0
}

// reap collects the ends of the threads of a process that is gone.
func (p *Process) reap() {
	for _, th := range p.Threads() {
		p.tr.poll(th, unix.WNOHANG)
	}
	p.tr.drop(p)
}
