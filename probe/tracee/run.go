//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// options are set on every thread in the call that seizes it, and are inherited by what the
// thread creates. PTRACE_O_EXITKILL is not among them: the tracer's end must not be the
// program's.
const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
	unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACEEXIT

// Handle makes h answer events that can't wait for Run. A process that makes others all the
// time has no thread fit for an injected call before the creation of one is answered. Without
// Handle such a process can't be changed before Run.
func (t *Tracer) Handle(h Handler) error {
	return t.Do(func() error {
		t.handler = h
		return nil
	})
}

// Run handles the events of all attached processes with h until none is left (nil) or ctx is
// done (its error). In the latter case the processes stay attached and keep running, and their
// next event waits for the next Run. After Close it returns, too, with ErrClosed if a process
// could not be detached from. Any goroutine may call Run, one at a time. h is called on
// the tracer's thread.
func (t *Tracer) Run(ctx context.Context, h Handler) error {
	stop := context.AfterFunc(ctx, func() {
		// Only to end the wait; the loop looks at ctx.
		_ = t.Do(func() error { return nil })
	})
	defer stop()
	return t.Do(func() error {
		if t.running {
			return errors.New("tracer runs already")
		}
		t.running = true
		t.handler = h
		defer func() { t.running = false }()
		defer t.place.release()
		return t.loop(ctx)
	})
}

// Stay makes Run continue when no process is attached, because others will be.
func (t *Tracer) Stay() error {
	return t.Do(func() error {
		t.stays = true
		return nil
	})
}

func (t *Tracer) loop(ctx context.Context) error {
	for {
		if t.queued.Load() > 0 {
			t.runJobs()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		closed := t.closed.Load()
		switch {
		case len(t.procs) == 0 && (closed || !t.stays && len(t.parted) == 0):
			return nil
		case closed:
			return ErrClosed
		case len(t.procs) == 0:
			select {
			case <-t.notify:
			case <-ctx.Done():
			}
			continue
		}
		if _, err := t.once(0, nil); err != nil {
			return err
		}
	}
}

// once handles the oldest deferred event, or waits for the next one; it may return without one.
// With WNOHANG it doesn't wait, and some is false if there was nothing. may, if not nil, says
// which events are handled now. The others are deferred.
func (t *Tracer) once(flags int, may func(*Thread) bool) (some bool, err error) {
	if th := t.nextQueued(may); th != nil {
		return true, t.handle(th)
	}
	var st uint32
	t.collectKept()
	tid, kept, e := look(-1, &st, flags)
	switch e {
	case 0:
		if tid == 0 {
			return false, nil
		}
		if th := t.threads[tid]; kept && th != nil {
			t.keep(th)
		} else if kept {
			var again uint32
			_, _ = wait(tid, &again, unix.WNOHANG) // fails only if the thread is gone
		}
		return true, t.event(tid, syscall.WaitStatus(st), may)
	case syscall.EINTR:
	case syscall.ECHILD:
		// Nothing is traced any more: what the tables still hold has
		// vanished without a status, as the leader of a group does when
		// another thread executes a program and dies.
		for _, p := range t.processes() {
			t.processGone(p, 0)
		}
		return false, nil
	default:
		return false, fmt.Errorf("wait for traced threads: %w", e)
	}
	return flags&unix.WNOHANG == 0, nil
}

// nextQueued takes the oldest deferred event that may be handled now; nil is none.
func (t *Tracer) nextQueued(may func(*Thread) bool) *Thread {
	for i := 0; i < len(t.queue); i++ {
		th := t.queue[i]
		stale := th.gone || !th.stopped || !th.deferred || th.p.held > 0
		if !stale && may != nil && !may(th) {
			continue
		}
		t.queue = slices.Delete(t.queue, i, i+1)
		if !stale {
			return th
		}
		i--
	}
	return nil
}

// event handles one result of wait. For may see once.
func (t *Tracer) event(tid int, st syscall.WaitStatus, may func(*Thread) bool) error {
	th := t.threads[tid]
	if !st.Stopped() {
		t.ended(tid, th, st)
		return nil
	}
	if th == nil {
		p := t.procs[tid]
		if p == nil || st>>16 != unix.PTRACE_EVENT_EXEC {
			if st>>16 == unix.PTRACE_EVENT_EXIT {
				// The thread was killed at birth, and so was its creator, so it will never be
				// reported. It may be gone by now.
				t.claim(tid)
				_ = ptrace(unix.PTRACE_CONT, tid, 0, 0)
				return nil
			}
			t.early[tid] = st
			if st>>16 == unix.PTRACE_EVENT_STOP {
				t.watchOrphan(tid)
			}
			return nil
		}
		// The leader had ended before we attached; the thread that executed
		// the program has taken its place.
		th = p.newThread(tid)
		th.announced = true
	}
	th.note(st)
	if th.paid() {
		t.release(th)
		return nil
	}
	if th.p.held > 0 && th.atCall() {
		th.passCall()
		return nil
	}
	if th.p.held > 0 {
		th.deferred = true
		return nil
	}
	if may != nil && !th.p.leaving && !may(th) {
		th.deferred = true
		t.queue = append(t.queue, th)
		return nil
	}
	return t.handle(th)
}

// handle classifies a thread's stop, asks the handler and resumes the thread. If the thread or
// process has vanished meanwhile, that is no error.
func (t *Tracer) handle(th *Thread) error {
	th.deferred = false
	th.busy = true
	defer func() { th.busy, th.doubtful = false, false }()
	if th.p.leaving {
		th.deferred = true
		th.forgetOwedFault()
		t.settle(th)
		if !th.Stopped() {
			return nil
		}
		return t.leave(th, th.deferred)
	}
	var err error
	switch th.status >> 16 {
	case 0:
		switch sig := th.status.StopSignal(); sig {
		case syscall.SIGTRAP:
			err = t.trap(th)
		case syscall.SIGTRAP | 0x80:
			th.seeComeback()
			err = th.cont(0)
		default:
			err = t.signal(th, sig)
		}
	case unix.PTRACE_EVENT_STOP:
		err = t.stop(th)
	case unix.PTRACE_EVENT_CLONE, unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK:
		th.mayLeave = true
		err = t.created(th, int(th.status>>16))
		if err == nil && th.mayLeave && th.Stopped() {
			err = th.cont(0)
		}
		th.mayLeave = false
	case unix.PTRACE_EVENT_EXEC:
		if !th.p.silent && !th.advance() {
			return nil // killed while it executed the program
		}
		if err = t.executed(th); err == nil && th.Stopped() {
			err = th.cont(0)
		}
	case unix.PTRACE_EVENT_EXIT:
		t.exiting(th)
		err = th.cont(0)
	default:
		err = th.cont(0)
	}
	if errors.Is(err, ErrGone) {
		th.ran()
		return nil
	}
	return err
}

// obey executes a verdict at the stop of a signal (or of a step).
func (t *Tracer) obey(th *Thread, v Verdict) error {
	if th.gone || !th.stopped {
		return nil // the handler detached the process
	}
	if th.requeued {
		v = th.decide(v)
	}
	switch v {
	case Deliver:
		th.stepping = false
		return th.deliver(true)
	case Step:
		th.stepping = true
		return th.cont(0)
	case Stay:
		th.stepping = false
		th.stay = true
		return nil
	}
	th.stepping = false
	return th.deliver(false)
}

// stop handles the stops of PTRACE_INTERRUPT and of job control, and the first stop of a new
// thread.
func (t *Tracer) stop(th *Thread) error {
	th.settleStop()
	if !th.announced {
		th.announced = true
		t.handler.NewThread(th)
		if th.gone || !th.stopped {
			return nil
		}
	}
	return th.cont(0)
}

// settleStop completes what is noted about a PTRACE_EVENT_STOP: whether job control made it,
// and the interrupted system call.
func (t *Thread) settleStop() {
	t.groupStop = t.status.StopSignal() != syscall.SIGTRAP
	t.rejoin = false
	if t.interrupts && !t.groupStop {
		t.hideInterrupt()
	}
	t.interrupts = false
}

// signal handles the stop of a signal other than SIGTRAP.
func (t *Tracer) signal(th *Thread, sig syscall.Signal) error {
	if err := th.readSiginfo(); err != nil {
		return err
	}
	th.hideSignal(sig)
	if len(th.owed) > 0 {
		th.swapOwed(sig)
	}
	v, ok := th.decided()
	if !ok {
		si := th.si
		v = t.handler.Signal(th, &si)
	}
	if v == Deliver && sig == syscall.SIGTRAP {
		return t.deliverTrap(th)
	}
	if v == Step && !th.si.Synchronous() && !th.gone && th.stopped && !th.requeued {
		if th.p.stopsAtOnce(sig) {
			// The signal isn't held, because a SIGCONT that comes meanwhile must be able to undo it.
			th.stepping = true
			return th.cont(sig)
		}
		th.hold()
	}
	return t.obey(th, v)
}
