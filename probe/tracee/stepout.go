//go:build linux && amd64

package tracee

import (
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// StepOut has a stopped thread execute instructions one by one, most of them at most,
// while all others may stay stopped, until it is at an address that isn't within. It
// reports whether it is: else a stop came that isn't that of a step or a signal, or the
// thread waits. Signals that come meanwhile are held, for the thread's next deliver or
// for leave. The trap of a step is the program's should the tracer be killed.
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

// holdStop makes a signal's stop, whose signal is held then, and one of an interrupt
// stops that need no answer. It is false for any other.
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
