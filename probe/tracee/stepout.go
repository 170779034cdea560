//go:build linux && amd64

package tracee

import (
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// StepOut makes a stopped thread execute at most a number of instructions one by one, while all
// others may stay stopped, until its address isn't within. It reports whether it got there;
// otherwise a stop came that is not for a step or a signal, or is for a fault of an instruction,
// or the thread waits. Such a stop waits for Run. Signals that arrive meanwhile are held, for the
// thread's next deliver or for leave. If the tracer is killed, the program gets the trap of the
// step.
func (t *Thread) StepOut(within func(symbols.Addr) bool, most int) bool {
	if t.busy || t.exitSeen || t.groupStop || t.debt != nil || !t.holdStop() {
		return false
	}
	defer func() { t.stepping = !t.stopped && !t.gone }() // the trap of a step that goes on is still to come
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
		if t.status>>16 == unix.PTRACE_EVENT_STOP && t.status.StopSignal() == syscall.SIGTRAP {
			t.finishStep() // the interrupt has overtaken the step's trap
		}
		if !t.holdStop() {
			return false
		}
	}
	return false
}

// holdStop turns a signal's stop, whose signal is then held, the end of a step, and the stop of an
// interrupt into stops that need no answer. It returns false for any other stop.
func (t *Thread) holdStop() bool {
	switch t.status >> 16 {
	case 0:
		if !t.deferred {
			return t.inDelivery() // its signal has been dropped
		}
		if t.status.StopSignal()&0x80 != 0 || isStopSignal(t.status.StopSignal()) || t.readSiginfo() != nil {
			return false
		}
		if t.stepping && t.si.Signal() == syscall.SIGTRAP && t.endsStep() {
			t.deferred = false
			return true
		}
		if !t.inDelivery() || t.si.Synchronous() {
			return false // what an instruction has raised is answered where the thread is
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
