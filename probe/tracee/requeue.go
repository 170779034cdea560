//go:build linux && amd64

package tracee

import (
	"syscall"

	"kprobe/internal/procfs"
)

// Signals and injected calls
//
// A thread that is stopped on the way to a signal's delivery can make a call only after it has
// left that stop, and the tracer may be killed at any moment after that. So the thread leaves
// with the signal, and the call's mask blocks it. The kernel puts the signal back, as it was,
// into the queue that it came from (kernel/signal.c, ptrace_signal). It comes again when the
// thread has its own mask back, whether a tracer lives or not. The stop is not collected before
// (see keep.go). The states:
//
//	kept        the registers lead through the call to rt_sigreturn. The mask is the thread's or,
//	            next, the call's. The kernel has the signal as that of the stop. If the tracer
//	            dies, the signal is delivered before the call, or goes back to its queue.
//	requeued    the signal is pending, blocked until rt_sigreturn or restore.
//
// Signals of job control can't be put back: queueing one removes those of the other kind from
// the queues, even those that came after it. But if the program has no handler for them, they
// need no room on a stack. Then they aren't blocked: the kernel acts on them at once, or does
// nothing if one of the other kind has come meanwhile, and a thread that is stopped this way
// makes its call in that stop.
//
// Faults, and other signals with their numbers, are blocked only if such a signal is waiting
// and the thread itself blocks it. A fault that no handler has been asked about is dropped,
// because its instruction raises it again. If kill sent the signal, the tracer keeps it
// (Thread.held).

// jobSignals are the signals of job control that can be blocked.
const jobSignals = 1<<(syscall.SIGTSTP-1) | 1<<(syscall.SIGTTIN-1) | 1<<(syscall.SIGTTOU-1) | 1<<(syscall.SIGCONT-1)

// callMask returns the signals that a call blocks in a thread whose own mask is given.
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

// caught returns those signals of set for which the process has handlers; all of them if that
// can't be read.
func (p *Process) caught(set uint64) uint64 {
	st, _ := procfs.Process(p.pid).Status()
	m, ok := st.Set("SigCgt")
	if !ok {
		return set
	}
	return set & m
}

// stopsAtOnce reports whether sig takes effect inside the kernel and needs nothing of the
// thread: a signal of job control without a handler.
func (p *Process) stopsAtOnce(sig syscall.Signal) bool {
	set := sigBit(sig) & (jobSignals | sigBit(syscall.SIGSTOP))
	return set != 0 && p.caught(set) == 0
}

// requeues returns the signal with which the stopped thread must leave its stop in order to
// make a call; 0 is none.
func (t *Thread) requeues() syscall.Signal {
	if !t.inDelivery() || sigBit(t.status.StopSignal())&synchronous != 0 {
		return 0
	}
	return t.status.StopSignal()
}

// faultsAgain reports whether the thread is stopped with a fault whose handling hasn't begun.
// If the fault were sent anew, it would lack its address and reason.
func (t *Thread) faultsAgain() bool {
	return !t.busy && t.deferred && t.status>>16 == 0 && t.status.StopSignal() != syscall.SIGTRAP &&
		t.haveSi && t.si.Synchronous()
}

// comesAgain turns the present stop, whose signal was put back or is raised again, into one
// without a signal. If a Handler is being asked about the signal, its verdict is kept until the
// signal comes again.
func (t *Thread) comesAgain() {
	t.status, t.deferred = stopStatus, false
	t.requeued = t.busy
	t.haveSi = t.haveSi && t.busy
}

// decision is what to do with a signal when it comes again.
type decision struct {
	tid     int
	si      Siginfo
	verdict Verdict
}

// decisionsMax bounds how many decisions are kept about signals that never came again, such as
// those that met another of their number.
const decisionsMax = 16

// decide keeps the verdict on the signal of the present stop, which was put back, and returns
// the verdict on the thread.
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

// decided returns the verdict that was kept on the signal of the present stop. If the signal
// has come to another thread, it may be delivered there only when that thread's Handler has
// said so.
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
