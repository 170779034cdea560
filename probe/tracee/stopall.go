//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Times of StopAll.
const (
	// stopPatience is how long threads that wait interruptibly may take, and whatever else
	// takes only a moment.
	stopPatience = 2 * time.Second
	// starvedPatience is how long threads may take that could run but get no processor.
	starvedPatience = 10 * time.Second
	// stopGrace is how long a thread may take before it is looked at, and interrupted
	// again. One that waits for a vfork child is given up then.
	stopGrace = 20 * time.Millisecond
	// stallPatience is how long an uninterruptible wait may take: for a page from a disk,
	// or for the memory map's lock, whose holder may wait for a processor. The other
	// threads are stopped meanwhile.
	stallPatience = 500 * time.Millisecond
	// detachPatience is how long all of this may take if the process is about to be left: a
	// thread that is given up then stays traced.
	detachPatience = 30 * time.Second
	// vforkPatience is how long a process that is about to be left may have only threads
	// that wait for a vfork child.
	vforkPatience = time.Second
)

// StopAll stops all threads of the process and keeps them stopped until ResumeAll. Pairs may
// nest. What happens to the threads meanwhile is handled afterwards. In a method of a Handler
// the pair must be complete before the method returns.
//
// If some threads don't stop, the error is a *NotStoppedError. The others are stopped
// nevertheless, and ResumeAll must be called. Threads that don't stop wait in the kernel, and
// stop before they execute program code. If ctx has no deadline, StopAll waits until it can
// tell that they wait for long, at most ten seconds.
func (p *Process) StopAll(ctx context.Context) error {
	return p.tr.Do(func() error { return p.stopAll(ctx) })
}

func (p *Process) stopAll(ctx context.Context) error {
	p.hold()
	switch {
	case p.gone.Load():
		return ErrGone
	case p.parted:
		return ErrParted
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(starvedPatience)
	}
	missing, err := p.stopThreads(deadline, min(stallPatience, time.Until(deadline)))
	if err != nil {
		return err
	}
	return p.allStopped(missing)
}

// allStopped returns the result of a stop that missed some threads.
func (p *Process) allStopped(missing []*Thread) error {
	if len(p.threads) == 0 {
		return ErrGone
	}
	if len(missing) > 0 {
		e := &NotStoppedError{PID: p.pid}
		for _, th := range missing {
			e.TIDs = append(e.TIDs, th.tid)
		}
		return e
	}
	return nil
}

// stopThreads interrupts threads and waits until no unknown thread shows up. stall is how long
// an uninterruptible wait may take.
func (p *Process) stopThreads(deadline time.Time, stall time.Duration) (missing []*Thread, err error) {
	for {
		for _, th := range p.threads {
			if !th.stopped && !th.interrupts {
				th.interrupt()
			}
		}
		missing = p.collect(deadline, stall)
		known := len(p.threads)
		tids, err := tasks(p.pid)
		if err != nil {
			return nil, err
		}
		for _, tid := range tids {
			if err := p.seizeThread(tid); err != nil {
				return missing, err
			}
		}
		if len(p.threads) == known || time.Now().After(deadline) {
			return missing, nil
		}
	}
}

func (t *Thread) interrupt() {
	// A thread that is gone is reported by wait.
	if e := ptrace(unix.PTRACE_INTERRUPT, t.tid, 0, 0); e == 0 {
		t.interrupts = true
	}
}

// collect takes the stops of all threads that are not stopped yet.
func (p *Process) collect(deadline time.Time, stall time.Duration) (missing []*Thread) {
	t := p.tr
	for _, th := range p.Threads() {
		if !th.stopped {
			t.poll(th, unix.WNOHANG)
		}
		th.finishStep()
	}
	stalled := time.Now().Add(stall)
	grace := time.Now().Add(stopGrace)
	again := grace
	cancel := func() {}
	defer func() { cancel() }()
	waiting := false
	for _, th := range p.Threads() {
		for !th.stopped && !th.gone {
			if !waiting {
				cancel, waiting = t.wakeAt(min(stopGrace, time.Until(deadline))), true
			}
			if t.poll(th, 0) {
				th.finishStep()
				continue
			}
			now := time.Now()
			if now.Before(grace) && now.Before(deadline) {
				continue
			}
			state := taskState(p.pid, th.tid)
			if hasEnded(state) {
				break // a leader that ended before its threads, or a process being killed
			}
			if state == 'D' && th.executes() && p.letExit() {
				continue
			}
			if now.After(deadline) || state == 'D' && (now.After(stalled) || th.AwaitsChild()) {
				missing = append(missing, th)
				break
			}
			if now.After(again) {
				// Another stop, such as that of a clone, makes the kernel
				// forget an interrupt. To ask twice asks for one stop.
				th.interrupt()
				again = now.Add(stopGrace)
			}
		}
	}
	return missing
}

// letExit lets threads continue that have stopped on their way to their end, and reports
// whether there were any. A thread that executes a program waits for them, uninterruptibly.
// They execute nothing of the program any more.
func (p *Process) letExit() (any bool) {
	for _, th := range p.Threads() {
		if !th.stopped {
			p.tr.poll(th, unix.WNOHANG)
		}
		if th.Stopped() && th.deferred && !th.busy && th.status>>16 == unix.PTRACE_EVENT_EXIT {
			th.deferred = false
			p.tr.exiting(th)
			_ = th.cont(0) // fails only if it is gone
			any = true
		}
	}
	return any
}

// poll takes the next status of one thread, without handling it. It returns false if there is
// none.
func (t *Tracer) poll(th *Thread, flags int) bool {
	if st, ok := t.claim(th.tid); ok {
		th.take(st)
		return true
	}
	var st uint32
	n, kept, e := look(th.tid, &st, flags)
	switch {
	case e == syscall.ECHILD:
		// Another thread's exec has ended it, or has taken its number.
		t.ended(th.tid, th, 0)
		return true
	case e != 0 || n != th.tid:
		return false
	case !syscall.WaitStatus(st).Stopped():
		t.ended(th.tid, th, syscall.WaitStatus(st))
		return true
	}
	th.take(syscall.WaitStatus(st))
	if kept {
		t.keep(th)
	}
	return true
}

// take records a stop of a thread that is kept stopped. Any stop but the one that was asked for
// needs handling afterwards.
func (t *Thread) take(st syscall.WaitStatus) {
	t.note(st)
	if t.paid() {
		return
	}
	if t.atCall() {
		t.passCall()
		return
	}
	t.deferred = true
	if st>>16 == unix.PTRACE_EVENT_STOP && t.announced {
		t.settleStop()
		t.deferred = false
	}
	t.interrupts = false
}

// finishStep completes the step, or takes the trap or fault, that an interrupt has overtaken.
// Its signal is already on its way. It must not reach the program if its cause is removed or
// the thread is left. A step that waits in a system call has no trap yet.
func (t *Thread) finishStep() {
	// Each signal of job control may come before the trap.
	for end := time.Now().Add(stopPatience); t.unfinished() && time.Now().Before(end); {
		grouped := t.groupStop
		t.groupStop = false // else it would only be listened to
		if t.cont(0) != nil {
			return
		}
		t.rejoin = grouped
		if !t.p.tr.pollFor(t, stopGrace) && !t.gone {
			t.interrupt()
			return
		}
	}
}

// unfinished reports whether a thread that an interrupt, or job control, has stopped still has
// a trap or fault to come.
func (t *Thread) unfinished() bool {
	if !t.Stopped() || t.status>>16 != unix.PTRACE_EVENT_STOP {
		return false
	}
	if ownPending(t.tid) {
		return true
	}
	if !t.stepping {
		return false
	}
	r, err := t.Regs()
	return err == nil && int64(r.Orig_rax) < 0
}

// pollFor is poll that waits for at most d.
func (t *Tracer) pollFor(th *Thread, d time.Duration) bool {
	cancel := t.wakeAt(d)
	defer cancel()
	for end := time.Now().Add(d); ; {
		if t.poll(th, 0) {
			return true
		}
		if time.Now().After(end) {
			return t.poll(th, unix.WNOHANG)
		}
	}
}

// ResumeAll ends what StopAll began.
func (p *Process) ResumeAll() error { return p.tr.Do(p.resumeAll) }

func (p *Process) resumeAll() error {
	if p.held--; p.held > 0 {
		return nil
	}
	var errs []error
	for _, th := range p.Threads() {
		switch {
		case !th.stopped || th.busy || th.stay:
		case th.deferred:
			p.tr.queue = append(p.tr.queue, th)
		default:
			errs = append(errs, th.deliver(false))
		}
	}
	p.tr.pauses.add(time.Since(p.since))
	return errors.Join(errs...)
}

// WithStopped runs fn with all threads stopped, and resumes them. Threads that did not stop are
// not passed to fn. If fn has no error of its own, they are reported by a *NotStoppedError.
func (p *Process) WithStopped(ctx context.Context, fn func([]*Thread) error) error {
	return p.tr.Do(func() error { return p.withStopped(ctx, fn) })
}

func (p *Process) withStopped(ctx context.Context, fn func([]*Thread) error) error {
	err := p.stopAll(ctx)
	var late *NotStoppedError
	if err == nil || errors.As(err, &late) {
		if ferr := fn(p.stoppedThreads()); ferr != nil {
			err = ferr
		}
	}
	if rerr := p.resumeAll(); err == nil {
		err = rerr
	}
	return err
}

func (p *Process) stoppedThreads() []*Thread {
	ts := p.Threads()
	n := 0
	for _, th := range ts {
		if th.Stopped() {
			ts[n] = th
			n++
		}
	}
	return ts[:n]
}
