//go:build linux && amd64

package tracee

import (
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// StepOut makes a stopped thread execute at most a number of instructions one by one, while all
// others may stay stopped, until its address isn't within. It reports whether it got there;
// otherwise a stop came that is not for a step or a signal, or the thread waits. Signals that
// arrive meanwhile are held, for the thread's next deliver or for leave. If the tracer is
// killed, the program gets the trap of the step.
func (t *Thread) StepOut(within func(symbols.Addr) bool, most int) bool {
	if t.busy || t.exitSeen || t.groupStop || t.debt != nil || !t.holdStop() {
		return false
	}
	defer func() { t.stepping = false }()
	for range most {
		r, err := t.Regs()
		if err != nil {
			return false
		}
		if !within(symbols.Addr(r.Rip)) {
			return true
		}
		t.stepping = true
		if t.cont(0) != nil || !t.p.tr.pollFor(t, stopPatience) || !t.Stopped() {
			return false
		}
		if t.status>>16 == 0 && t.status.StopSignal() == syscall.SIGTRAP && t.readSiginfo() == nil && t.endsStep() {
			t.deferred = false
		} else if !t.holdStop() {
			return false
		}
	}
	return false
}

// holdStop turns a signal's stop, whose signal is then held, and the stop of an interrupt into
// stops that need no answer. It returns false for any other stop.
func (t *Thread) holdStop() bool {
	switch t.status >> 16 {
	case 0:
		if !t.deferred {
			return t.inDelivery() // its signal has been dropped
		}
		if t.status.StopSignal()&0x80 != 0 || isStopSignal(t.status.StopSignal()) || !t.inDelivery() || t.readSiginfo() != nil {
			return false
		}
		if len(t.owed) > 0 {
			t.swapOwed(t.status.StopSignal())
		}
		t.hold()
		t.status, t.deferred = stopStatus, false
		return true
	case unix.PTRACE_EVENT_STOP:
		t.settleStop()
		t.deferred = false
		return !t.groupStop
	}
	return false
}
