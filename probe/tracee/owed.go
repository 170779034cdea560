//go:build linux && amd64

package tracee

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
)

// hold keeps the signal that stopped the thread until its step is over. As one that
// is pending does in the kernel, one that is held swallows the next of its kind
// (legacy_queue in kernel/signal.c): a timer that is faster than steps would let them
// pile up.
func (t *Thread) hold() {
	if !slices.ContainsFunc(t.held, t.si.swallowedBy) {
		t.held = append(t.held, t.si)
	}
}

// swallowedBy reports whether the kernel would drop the signal while other is pending:
// of those that don't queue, in the same queue, which the way of sending tells.
func (s *Siginfo) swallowedBy(other Siginfo) bool {
	if s.Signal() >= sigRTMin || s.Synchronous() || s.Signal() != other.Signal() || s.Code() != other.Code() {
		return false
	}
	return s.Code() == siUser || s.Code() == siTkill || s.Code() == siKernel
}

// swapOwed exchanges, while stand-ins are under way, the siginfo of a signal's
// stop for the oldest that is owed for its number. What it replaces waits in
// its turn, unless it was a stand-in.
//
// Of the signals that don't queue a pending one swallows a stand-in. So a
// stranger that comes while one is owed means that its stand-in is lost, and
// another is sent.
func (t *Thread) swapOwed(sig syscall.Signal) {
	for i := range t.owed {
		if t.owed[i].Signal() != sig {
			continue
		}
		si := t.owed[i]
		t.owed = append(t.owed[:i], t.owed[i+1:]...)
		if !t.isStandIn(&t.si) {
			t.owed = append(t.owed, t.si)
			if sig < sigRTMin {
				_ = unix.Tgkill(t.p.pid, t.tid, sig) // fails only if the thread is gone
			}
		}
		if e := setSiginfo(t.tid, &si); e == 0 {
			t.si = si
		}
		// A failure can only mean that the thread's end will be reported.
		return
	}
}

// sigRTMin is the first signal that queues (include/uapi/asm-generic/signal.h).
const sigRTMin = 32

// isStandIn reports whether si is of a signal that the tracer sent. To a process
// in a PID namespace that the tracer isn't in, its sender is 0.
func (t *Thread) isStandIn(si *Siginfo) bool {
	return si.Code() == siTkill && (si.PID() == t.p.tr.pid || si.PID() == 0)
}

// settleOwed sees, in a process that is about to be left, to the stand-ins, as nobody will
// be there to exchange them. Those of faults are taken back: the instruction raises each
// again, from wherever the thread is led to. To the next of the others the thread is led,
// which leave exchanges.
func (p *Process) settleOwed() {
	for _, th := range p.Threads() {
		for th.stopped && !th.forgetOwedFault() && th.leadToOwed(th.owed[th.owedFault()].Signal()) {
		}
		for i := 0; th.stopped && i < len(th.owed); i++ {
			if th.leadToOwed(th.owed[i].Signal()) {
				break
			}
		}
	}
}

// owedFault is the place among the owed of a fault that comes again; -1 is none.
func (t *Thread) owedFault() int {
	return slices.IndexFunc(t.owed, func(si Siginfo) bool { return si.comesAgain() })
}

// forgetOwedFault drops the stand-in that has stopped the thread, and the fault for
// which it stands. It is false while the thread owes a fault and isn't at its stand-in.
func (t *Thread) forgetOwedFault() bool {
	i := t.owedFault()
	if i < 0 {
		return true
	}
	if !t.deferred || t.status>>16 != 0 || t.status.StopSignal() != t.owed[i].Signal() || t.readSiginfo() != nil || !t.isStandIn(&t.si) {
		return false
	}
	t.owed = slices.Delete(t.owed, i, i+1)
	t.status, t.deferred = stopStatus, false
	return t.owedFault() < 0
}

// leadToOwed has a thread whose stop needs no answer go on to the stop of the next
// signal that is pending, if a stand-in of sig is among them: it executes
// nothing on the way. It reports whether the thread has come to another stop.
func (t *Thread) leadToOwed(sig syscall.Signal) bool {
	if t.deferred || t.groupStop || t.busy || t.debt != nil {
		return false
	}
	st, _ := procfs.Thread(t.p.pid, t.tid).Status()
	pending, ok := st.Set("SigPnd")
	blocked, ok2 := st.Set("SigBlk")
	if !ok || !ok2 || pending&^blocked&sigBit(sig) == 0 {
		return false
	}
	return t.leadOn()
}

// leadOn has a thread for which a signal is pending go on to its stop.
func (t *Thread) leadOn() bool {
	if t.lead(0) != nil || t.request(unix.PTRACE_CONT, 0) != nil {
		return false // gone: its end will be reported
	}
	t.ran()
	return t.p.tr.pollFor(t, stopGrace)
}

// backToDelivery leads a thread that is to leave its stop with sig, and has made a call
// since, to the stop of a stand-in: from there the signal goes with what it says of its
// sender. It is false where no stand-in came, or would come.
func (t *Thread) backToDelivery(sig syscall.Signal) bool {
	if blocked, err := t.Blocked(sig); err != nil || blocked || t.groupStop || t.readSiginfo() != nil {
		return false
	}
	si := t.si
	if unix.Tgkill(t.p.pid, t.tid, sig) != nil || !t.leadOn() || !t.Stopped() ||
		!t.inDelivery() || t.status.StopSignal() != sig || t.readSiginfo() != nil || !t.isStandIn(&t.si) {
		return false
	}
	return t.SetSiginfo(&si) == nil
}
