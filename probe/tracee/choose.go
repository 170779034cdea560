//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// choosePatience is how long a process may have no thread fit for a call,
// leavePatience where it is about to be left: what isn't done then stays undone.
// Where a thread could run and gets no processor, it is starvedPatience.
const (
	choosePatience = time.Second
	leavePatience  = 4 * time.Second
)

// chooseThread tries the process's threads until fn finds one fit: those that
// are stopped anyway, then others, stopped one at a time and only for as long
// as fn takes. A thread in a wait that a killed tracer would begin anew is
// taken only if there is no other among the first few.
func (p *Process) chooseThread(ctx context.Context, fn func(*Thread) error) error {
	const fewEnough = 8
	err := error(ErrNoThread)
	var second []*Thread
	var moved []*Thread
	defer func() {
		for _, t := range moved {
			p.tr.release(t)
		}
	}()
	for _, t := range p.Threads() {
		fit := t.Stopped() && t.fit()
		if !fit && t.Stopped() && t.passEvent() {
			// Its event is handled: nobody else would let it run on.
			fit, moved = true, append(moved, t)
		}
		if fit {
			if r, rerr := t.Regs(); rerr == nil && t.inWait(r) {
				second = append(second, t)
				continue
			}
			if err = fn(t); !tryAnother(err) {
				return err
			}
		}
	}
	if p.detaching {
		second = append(second, p.withSignals()...)
	}
	for _, t := range second {
		if err = p.inStop(t, fn); !tryAnother(err) {
			return err
		}
	}
	tried := 0
	// A thread that was about to make another, or whose stop is late because
	// the machine is busy, is fit a moment later.
	patience := choosePatience
	if p.detaching {
		patience = leavePatience
	}
	begun, limit := time.Now(), patience
	for pass := 0; pass < 2 || errors.Is(err, ErrNoThread) && time.Since(begun) < limit; pass++ {
		if p.dead() {
			return ErrGone
		}
		if pass >= 1 {
			// A thread may wait for a child, or for threads, that wait for us.
			p.serveSharers()
			if p.inExec() {
				p.letExit()
			}
		}
		if pass >= 2 {
			time.Sleep(time.Millisecond)
		}
		candidates := false
		limit = patience
		for _, t := range p.Threads() {
			if t.stopped || t.gone || ctx.Err() != nil {
				continue
			}
			if pass > 0 && hasEnded(taskState(p.pid, t.tid)) {
				continue
			}
			candidates = true
			tried++
			terr := p.briefly(t, func() error {
				r, err := t.Regs()
				if err != nil {
					return err
				}
				if pass == 0 && tried <= fewEnough && t.inWait(r) {
					return ErrNoThread
				}
				return fn(t)
			})
			if !tryAnother(terr) {
				return terr
			}
			if !t.stopped && taskState(p.pid, t.tid) == 'R' {
				limit = starvedPatience
			}
			if !errors.Is(terr, ErrNoThread) || err == nil {
				err = terr
			}
		}
		if !candidates {
			break // what is stopped, such as on its way out, stays so
		}
	}
	if p.gone.Load() || p.dead() {
		return ErrGone
	}
	if !errors.Is(err, ErrNoThread) {
		return err
	}
	for _, t := range p.withSignals() {
		if err = p.inStop(t, fn); !tryAnother(err) {
			return err
		}
	}
	if errors.Is(err, ErrNoThread) {
		err = fmt.Errorf("%w: %s", ErrNoThread, p.occupations())
	}
	return err
}

// occupations says what the threads do that a call can't be made in: some of
// them, if there are many.
func (p *Process) occupations() string {
	const most = 4
	var out []string
	for i, t := range p.Threads() {
		if i == most {
			out = append(out, fmt.Sprintf("%d more", len(p.threads)-most))
			break
		}
		what := "has ended"
		switch state := taskState(p.pid, t.tid); {
		case t.stopped && t.status>>16 == unix.PTRACE_EVENT_EXIT:
			what = "is about to end"
		case t.stopped && t.status>>16 != 0:
			what = "is stopped"
		case t.stopped:
			what = "has " + unix.SignalName(t.status.StopSignal()&^0x80)
		case state == 'R':
			what = "gets no processor"
		case state == 'D':
			what = "waits uninterruptibly"
		case !hasEnded(state):
			what = "did not stop"
		}
		out = append(out, fmt.Sprintf("thread %d %s", t.tid, what))
	}
	return strings.Join(out, ", ")
}

// inStop calls fn with a stopped thread. One that waited with a signal, which
// comes again after a call, has no event any more for which it is let go on.
func (p *Process) inStop(t *Thread, fn func(*Thread) error) error {
	waited := t.deferred && !t.busy
	err := fn(t)
	if waited && !t.deferred {
		p.tr.release(t)
	}
	return err
}

// withSignals are the threads that wait with a signal from elsewhere. A process
// that is not let run for a while, as while probes are made ready, may have no
// others.
func (p *Process) withSignals() (ts []*Thread) {
	for _, t := range p.Threads() {
		if t.Stopped() && t.asyncSignal() {
			ts = append(ts, t)
		}
	}
	return ts
}

// dead reports whether every thread has ended, though not all ends were
// collected yet, or stands in the kernel on its way to its end.
func (p *Process) dead() bool {
	for _, t := range p.threads {
		if t.stopped && t.status>>16 == unix.PTRACE_EVENT_EXIT {
			continue
		}
		if !hasEnded(taskState(p.pid, t.tid)) {
			return false
		}
	}
	return true
}

// hasEnded reports the states of a thread that executes nothing any more: a
// zombie, dead, or not to be found.
func hasEnded(state byte) bool { return state == 'Z' || state == 'X' || state == 0 }

// tryAnother reports errors that are about the thread, not about the call.
func tryAnother(err error) bool {
	return errors.Is(err, ErrNoThread) || errors.Is(err, ErrNoRoom) || errors.Is(err, ErrGone) || errors.Is(err, ErrRunning)
}

// fit reports whether a stopped thread can execute an injected call and then
// go on with its own stop as if nothing had been.
func (t *Thread) fit() bool {
	if t.exitSeen {
		return false
	}
	switch t.status >> 16 {
	case 0:
		if t.busy || !t.deferred {
			return true
		}
		// A breakpoint, or a step's end, that waits to be handled: its signal is
		// for us, and goes to the program only where the int3 is the program's
		// own.
		return t.status.StopSignal() == syscall.SIGTRAP && t.readSiginfo() == nil &&
			(t.si.Code() == siKernel || t.stepping && t.endsStep())
	case unix.PTRACE_EVENT_STOP:
		return true
	}
	return false
}

// asyncSignal reports whether the thread waits with a signal that another thread
// or process has sent it, not its own instruction.
func (t *Thread) asyncSignal() bool {
	if t.exitSeen || t.busy || !t.deferred || t.status>>16 != 0 || t.status.StopSignal()&0x80 != 0 {
		return false
	}
	return t.readSiginfo() == nil && !t.si.Synchronous() && t.status.StopSignal() != syscall.SIGTRAP
}

// briefly stops one thread, calls fn and resumes it.
func (p *Process) briefly(t *Thread, fn func() error) error {
	t.interrupt()
	if ok := p.tr.pollFor(t, stopGrace); !ok || !t.stopped {
		return ErrNoThread // its stop will come to Run, which resumes it
	}
	if !t.stepping {
		// An int3's trap would arrive in the call, and be lost.
		if t.finishStep(); !t.Stopped() {
			return ErrNoThread
		}
	}
	if t.stepping && t.status>>16 == unix.PTRACE_EVENT_STOP || t.deferred && !t.fit() && !t.passEvent() {
		p.tr.release(t)
		return ErrNoThread
	}
	err := fn()
	p.tr.release(t)
	return err
}

// release resumes a thread that briefly stopped, or lets Run handle the event
// that came instead.
func (t *Tracer) release(th *Thread) {
	switch {
	case !th.Stopped() || th.p.held > 0:
	case th.deferred:
		t.queue = append(t.queue, th)
	default:
		// A thread that is gone will be reported.
		_ = th.deliver(false)
	}
}

// inWait reports whether the thread is in a wait that would begin anew.
func (t *Thread) inWait(r *unix.PtraceRegs) bool {
	return int64(r.Rax) == erestartRestartblock || r.Rax == unix.SYS_RESTART_SYSCALL && t.atSyscall(r.Rip)
}
