//go:build linux && amd64

package tracee

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Calls that are given up
//
// A thread may wait in an injected call and not be stoppable (state D: for a lock whose holder
// waits for a page, for a dead file server). The tracer can't wait forever. The states:
//
//	called   the thread is in the call; run waits for it
//	owed     the call was given up: the thread gets its own context back only when it comes out.
//	         Until then seccomp may be suspended, and the injected code and the saved context are
//	         in the process. No other call is injected, as it would use the same places. The
//	         thread was interrupted, so it stops before it executes anything.
//	paid     at its next stop, of whatever kind, the thread gets its context, its seccomp rules
//	         and its mask back, and the process the bytes that were there.
//
// If the tracer dies, the thread returns to its context by rt_sigreturn, and the kernel ends
// the suspension.

// LateError says that a thread still waits in an injected call.
type LateError struct{ PID, TID int }

// Error names the thread.
func (e *LateError) Error() string {
	return fmt.Sprintf("thread %d of process %d waits uninterruptibly in an injected call", e.TID, e.PID)
}

// Unwrap gives ErrTimeout.
func (e *LateError) Unwrap() error { return ErrTimeout }

// owe gives up the call that the thread is in.
func (t *Thread) owe(in *injection) {
	t.ran()
	t.interrupts = true
	t.debt = in
}

// paid settles the debt of a thread, if it has one, at the stop that was just noted. It reports
// whether the stop is then one that was asked for, without an event.
func (t *Thread) paid() bool {
	in := t.debt
	if in == nil {
		return false
	}
	t.debt = nil
	if t.status>>16 == unix.PTRACE_EVENT_EXIT {
		_ = in.putBack() // fails only if the memory is gone
		return false
	}
	grouped := t.status>>16 == unix.PTRACE_EVENT_STOP && t.status.StopSignal() != syscall.SIGTRAP
	in.entry = false
	var r unix.PtraceRegs
	if e := getRegs(t.tid, &r); e != 0 {
		return false // gone
	}
	if !in.room.holds(r.Rip) {
		_ = in.putBack() // as above
		return false
	}
	if t.inDelivery() {
		if err := in.keepSignal(t.status.StopSignal()); err != nil {
			return false // its own fault, by which it dies
		}
	}
	in.saved.Rip = in.begun
	t.trapIP = 0
	stop := t.status
	grouped, err := in.restore(grouped)
	if err != nil {
		return false
	}
	if t.status = stopStatus; grouped && stop>>16 == unix.PTRACE_EVENT_STOP {
		t.status = stop
	}
	t.groupStop, t.syscalled, t.deferred, t.interrupts = grouped, true, false, false
	return true
}

// holds reports whether pc is in the injected code.
func (r *room) holds(pc uint64) bool { return pc-r.code < ScratchCode }

// payDebts waits for a moment for the threads that are still in calls, if there are any. The
// error is ErrNoThread.
func (p *Process) payDebts() error {
	for _, t := range p.threads {
		if t.debt == nil {
			continue
		}
		if p.tr.pollFor(t, stopGrace); t.debt != nil {
			return fmt.Errorf("%w: thread %d waits in one still", ErrNoThread, t.tid)
		}
		p.tr.release(t)
	}
	return nil
}
