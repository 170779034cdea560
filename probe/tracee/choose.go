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

// choosePatience is how long a process may have no thread fit for a call. leavePatience is the
// same if the process is about to be left, when whatever isn't done stays undone.
// starvedPatience is for a thread that could run but gets no processor.
const (
	choosePatience = time.Second
	leavePatience  = 4 * time.Second
)

// chooseThread tries the process's threads until fn accepts one: first those that are stopped
// anyway, then others, which are stopped one at a time, and only while fn runs. A thread in a
// wait that would begin anew if the tracer were killed is taken only if the first few have no
// better one.
func (p *Process) chooseThread(ctx context.Context, fn func(*Thread) error) error {
	c := &choice{p: p, fn: fn, err: ErrNoThread}
	defer c.letGo()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		over := c.stopped() || c.running(ctx) || c.each(p.withSignals())
		switch {
		case !errors.Is(c.err, ErrNoRoom):
		case p.held > 0 || p.tr.handler == nil || ctx.Err() != nil || time.Since(begun) > choosePatience:
		default:
			// A thread that has met the end of its stack has room a moment later.
			p.serveSignals()
			continue
		}
		if !over && errors.Is(c.err, ErrNoThread) {
			return fmt.Errorf("%w: %s", ErrNoThread, p.occupations())
		}
		return c.err
	}
}

// serveSignals handles the signals that threads wait with.
func (p *Process) serveSignals() {
	for _, t := range p.Threads() {
		if t.Stopped() && t.waitsWithSignal() {
			_ = p.tr.handle(t) // it fails only if the thread is gone, or beyond help
		}
	}
}

// choice is the search for a thread. Each step reports whether the search is over: fn has
// answered, with err, or no thread will do.
type choice struct {
	p  *Process
	fn func(*Thread) error
	// err is the error of the last thread that was fit, or the reason why none was.
	err error
	// moved are threads whose event was handled for the sake of the call. Nobody else would
	// let them run on.
	moved []*Thread
}

func (c *choice) letGo() {
	for _, t := range c.moved {
		c.p.tr.release(t)
	}
}

// each tries stopped threads.
func (c *choice) each(threads []*Thread) (over bool) {
	for _, t := range threads {
		if c.err = c.p.inStop(t, c.fn); !tryAnother(c.err) {
			return true
		}
	}
	return false
}

// stopped tries the threads that are stopped anyway, those in a wait last.
func (c *choice) stopped() (over bool) {
	var second []*Thread
	for _, t := range c.p.Threads() {
		if !t.Stopped() {
			continue
		}
		if !t.fit() {
			if !t.passEvent() {
				continue
			}
			c.moved = append(c.moved, t)
		}
		if r, err := t.Regs(); err == nil && t.inWait(r) {
			second = append(second, t)
			continue
		}
		if c.err = c.fn(t); !tryAnother(c.err) {
			return true
		}
	}
	if c.p.detaching {
		second = append(second, c.p.withSignals()...)
	}
	return c.each(second)
}

// running stops the other threads, one at a time, as long as there is hope. A thread that was
// about to make another, or whose stop is late because the machine is busy, is fit a moment
// later.
func (c *choice) running(ctx context.Context) (over bool) {
	p := c.p
	patience := choosePatience
	if p.detaching {
		patience = leavePatience
	}
	begun, limit, tried := time.Now(), patience, 0
	for pass := 0; pass < 2 || errors.Is(c.err, ErrNoThread) && time.Since(begun) < limit; pass++ {
		if p.dead() {
			c.err = ErrGone
			return true
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
			if t.stopped || t.gone || ctx.Err() != nil || pass > 0 && hasEnded(taskState(p.pid, t.tid)) {
				continue
			}
			candidates = true
			tried++
			err := c.stopFor(t, pass == 0 && tried <= fewEnough)
			if !tryAnother(err) {
				c.err = err
				return true
			}
			if !t.stopped && taskState(p.pid, t.tid) == 'R' {
				limit = starvedPatience
			}
			if !errors.Is(err, ErrNoThread) {
				c.err = err
			}
		}
		if !candidates {
			break // stopped threads, such as those on their way out, stay stopped
		}
	}
	if p.gone.Load() || p.dead() {
		c.err = ErrGone
	}
	return !errors.Is(c.err, ErrNoThread)
}

// fewEnough is how many threads are passed over because they are in a wait.
const fewEnough = 8

// stopFor stops a running thread for the call. If choosy is set, a thread in a wait is passed
// over, because there may be one that isn't.
func (c *choice) stopFor(t *Thread, choosy bool) error {
	return c.p.briefly(t, func() error {
		r, err := t.Regs()
		if err != nil {
			return err
		}
		if choosy && t.inWait(r) {
			return ErrNoThread
		}
		return c.fn(t)
	})
}

// occupations says what the threads are doing that prevents a call; for some of them, if there
// are many.
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

// inStop calls fn with a stopped thread. If the thread was waiting with a signal that comes
// again after a call, it has no event left that would let it continue.
func (p *Process) inStop(t *Thread, fn func(*Thread) error) error {
	waited := t.deferred && !t.busy
	err := fn(t)
	if waited && !t.deferred {
		p.tr.release(t)
	}
	return err
}

// withSignals returns the threads that wait with a signal that comes again. A process that
// doesn't run for a while, as while probes are prepared, may have no others.
func (p *Process) withSignals() (ts []*Thread) {
	for _, t := range p.Threads() {
		if t.Stopped() && t.waitsWithSignal() {
			ts = append(ts, t)
		}
	}
	return ts
}

// dead reports whether every thread has ended, even if not all ends were collected yet, or is
// on its way to its end in the kernel.
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

// hasEnded reports whether the state is that of a thread that executes nothing any more: a
// zombie, dead, or not found.
func hasEnded(state byte) bool { return state == 'Z' || state == 'X' || state == 0 }

// tryAnother reports whether an error concerns the thread, and not the call.
func tryAnother(err error) bool {
	return errors.Is(err, ErrNoThread) || errors.Is(err, ErrNoRoom) || errors.Is(err, ErrGone) || errors.Is(err, ErrRunning)
}

// fit reports whether a stopped thread can execute an injected call and then continue from its
// own stop as if nothing had happened.
func (t *Thread) fit() bool {
	if t.exitSeen {
		return false
	}
	switch t.status >> 16 {
	case 0:
		if t.busy || !t.deferred {
			return true
		}
		// The stop of a breakpoint or of a step's end that is not handled yet. Its signal is the
		// tracer's, and goes to the program only if the int3 is the program's own. A program that
		// steps itself stops with a trap after each instruction, and is owed this one.
		return t.status.StopSignal() == syscall.SIGTRAP && t.readSiginfo() == nil &&
			(t.si.Code() == siKernel || t.isWatched() || t.stepping && t.endsStep() || t.ownStep())
	case unix.PTRACE_EVENT_STOP:
		return true
	}
	return false
}

// waitsWithSignal reports whether the thread waits with a signal that comes again after a call:
// one that another thread or process has sent, or a fault. A SIGTRAP of an int3 or a step doesn't.
func (t *Thread) waitsWithSignal() bool {
	if t.exitSeen || t.busy || !t.deferred || t.status>>16 != 0 || t.status.StopSignal()&0x80 != 0 {
		return false
	}
	return t.readSiginfo() == nil && (!t.si.Synchronous() || t.si.comesAgain())
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
