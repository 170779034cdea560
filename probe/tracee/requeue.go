//go:build linux && amd64

package tracee

import (
	"syscall"

	"kprobe/internal/procfs"
)

// Signals and injected calls
//
// A thread that is stopped on the way to a signal's delivery makes a call only
// once it has left that stop, and the tracer may be killed at any moment after.
// So it leaves with the signal, which the call's mask blocks: the kernel puts it
// back, as it was, into the queue that it came from (kernel/signal.c,
// ptrace_signal), and it comes again when the thread has its own mask back,
// whether a tracer lives or not. It is not collected before (see keep.go). In
// states:
//
//	kept        the registers lead through the call to rt_sigreturn, the mask is
//	            the thread's or, next, the call's; the kernel has the signal as
//	            that of the stop. Should the tracer die it is delivered in front
//	            of the call, or goes back to its queue.
//	requeued    it is pending, blocked until rt_sigreturn or restore.
//
// The signals of job control can't be put back: to queue one takes those of the
// other kind from the queues, even those that came after it. They need no room
// on a stack either, where the program has no handler for them, and aren't
// blocked then: the kernel does what they say at once, or nothing if one of the
// other kind has come meanwhile, and a thread that is stopped so makes its call
// in its stop.
//
// Faults, and what has their numbers, are blocked only where such a signal waits that
// the thread blocks itself. A fault that nobody has been asked about is dropped, as its
// instruction raises it again; what kill sent is kept by the tracer (Thread.held).

// jobSignals are those of job control that can be blocked.
const jobSignals = 1<<(syscall.SIGTSTP-1) | 1<<(syscall.SIGTTIN-1) | 1<<(syscall.SIGTTOU-1) | 1<<(syscall.SIGCONT-1)

// callMask gives the signals that a call blocks in a thread that blocks own
// itself.
func (t *Thread) callMask(own uint64) uint64 {
	free := jobSignals&^own&^t.p.caught(jobSignals) | synchronous
	if own&synchronous != 0 {
		st, _ := procfs.Thread(t.p.pid, t.tid).Status()
		for _, queue := range []string{"SigPnd", "ShdPnd"} {
			waiting, _ := st.Set(queue)
			free &^= waiting & own & synchronous
		}
	}
	return ^(sigBit(syscall.SIGSTOP) | free)
}

// caught gives the signals among set for which the process has handlers; all,
// where that can't be read.
func (p *Process) caught(set uint64) uint64 {
	st, _ := procfs.Process(p.pid).Status()
	m, ok := st.Set("SigCgt")
	if !ok {
		return set
	}
	return set & m
}

// stopsAtOnce reports whether sig does what it does inside the kernel, where it
// needs nothing of the thread: a signal of job control without a handler.
func (p *Process) stopsAtOnce(sig syscall.Signal) bool {
	set := sigBit(sig) & (jobSignals | sigBit(syscall.SIGSTOP))
	return set != 0 && p.caught(set) == 0
}

// requeues gives the signal that the stopped thread is to leave its stop with in
// order to make a call; 0 is none.
func (t *Thread) requeues() syscall.Signal {
	if !t.inDelivery() || sigBit(t.status.StopSignal())&synchronous != 0 {
		return 0
	}
	return t.status.StopSignal()
}

// faultsAgain reports whether the thread is stopped with a fault whose handling
// hasn't begun. Sent anew it would be without its address and reason.
func (t *Thread) faultsAgain() bool {
	return !t.busy && t.deferred && t.status>>16 == 0 && t.status.StopSignal() != syscall.SIGTRAP &&
		t.haveSi && t.si.Synchronous()
}

// comesAgain makes the present stop, whose signal was put back or is raised
// again, one without a signal. If a Handler is being asked about it its verdict is kept until then.
func (t *Thread) comesAgain() {
	t.status, t.deferred = stopStatus, false
	t.requeued = t.busy
	t.haveSi = t.haveSi && t.busy
}

// decision is what is to be done with a signal when it comes again.
type decision struct {
	tid     int
	si      Siginfo
	verdict Verdict
}

// decisionsMax bounds what is kept of signals that never came again, such as
// those that met another of their number.
const decisionsMax = 16

// decide keeps the verdict on the signal of the present stop, which was put back,
// and gives the one on the thread.
func (t *Thread) decide(v Verdict) Verdict {
	t.requeued, t.haveSi = false, false
	if v == Step {
		return v // it comes in the step, and is asked about again
	}
	p := t.p
	if len(p.decisions) == decisionsMax {
		p.decisions = p.decisions[1:]
	}
	p.decisions = append(p.decisions, decision{t.tid, t.si, v})
	if v == Deliver {
		return Resume
	}
	return v
}

// decided gives the verdict that was kept on the signal of the present stop.
// Another thread that it has come to may be delivered it only when its own
// Handler has said so.
func (t *Thread) decided() (Verdict, bool) {
	p := t.p
	for i, d := range p.decisions {
		if d.si != t.si {
			continue
		}
		p.decisions = append(p.decisions[:i:i], p.decisions[i+1:]...)
		if d.verdict == Deliver {
			return Deliver, d.tid == t.tid
		}
		return Resume, true
	}
	return 0, false
}
