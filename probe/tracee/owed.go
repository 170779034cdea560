//go:build linux && amd64

package tracee

import (
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
)

// hold keeps the signal that stopped the thread until its step is over. A held signal swallows
// the next of its kind, as a pending one does in the kernel (legacy_queue in kernel/signal.c).
// Otherwise the signals of a timer that is faster than steps would pile up.
func (t *Thread) hold() {
	if !slices.ContainsFunc(t.held, t.si.swallowedBy) {
		t.held = append(t.held, t.si)
	}
}

// swallowedBy reports whether the kernel would drop the signal while other is pending. It does
// for signals that don't queue, in the same queue, which the way of sending tells.
func (s *Siginfo) swallowedBy(other Siginfo) bool {
	if s.Signal() >= sigRTMin || s.Synchronous() || s.Signal() != other.Signal() || s.Code() != other.Code() {
		return false
	}
	return s.Code() == siUser || s.Code() == siTkill || s.Code() == siKernel
}

// swapOwed handles a signal's stop while stand-ins are pending: it replaces the siginfo by that
// of the oldest signal owed for its number. If the stop was for another signal and not for a
// stand-in, that signal is owed in its turn.
//
// For signals that don't queue, a pending one swallows a stand-in. So if another signal comes
// while one is owed, its stand-in is lost, and another is sent.
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

// isStandIn reports whether si belongs to a signal that the tracer sent. In a PID namespace
// without the tracer, its sender is 0.
func (t *Thread) isStandIn(si *Siginfo) bool {
	return si.Code() == siTkill && (si.PID() == t.p.tr.pid || si.PID() == 0)
}

// settleOwed deals with the stand-ins in a process that is about to be left, because nobody
// will be there to exchange them. Stand-ins for faults are taken back: the instruction raises
// each fault again, wherever the thread is led to. For other signals the thread is led to the
// next stand-in, which leave exchanges.
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

// owedFault returns the index, among the owed signals, of a fault that comes again; -1 if there
// is none.
func (t *Thread) owedFault() int {
	return slices.IndexFunc(t.owed, func(si Siginfo) bool { return si.comesAgain() })
}

// forgetOwedFault drops the stand-in that has stopped the thread, and the fault for which it
// stands. It returns false while the thread owes a fault and isn't at its stand-in.
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

// leadToOwed takes a thread whose stop needs no answer to the stop of the next pending signal,
// if a stand-in for sig is among them. The thread executes nothing on the way. leadToOwed
// reports whether the thread has come to another stop.
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

// leadOn takes a thread for which a signal is pending to that signal's stop. The thread executes nothing on the way, so
// it is given up after stopGrace only if it doesn't just wait for a processor.
func (t *Thread) leadOn() bool {
	if t.lead(0) != nil || t.request(unix.PTRACE_CONT, 0) != nil {
		return false // gone: its end will be reported
	}
	t.ran()
	for end := time.Now().Add(starvedPatience); ; {
		if t.p.tr.pollFor(t, stopGrace) {
			return true
		}
		if st := taskState(t.p.pid, t.tid); st != 'R' && st != 't' || time.Now().After(end) {
			return false
		}
	}
}

// backToDelivery is for a thread that should leave its stop with sig, but has made a call
// since. It takes the thread to the stop of a stand-in. From there the signal goes out with the
// information about its sender. It returns false if no stand-in came, or would come.
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
