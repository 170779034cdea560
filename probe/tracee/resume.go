//go:build linux && amd64

package tracee

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// note records a stop.
func (t *Thread) note(st syscall.WaitStatus) {
	t.stopped = true
	t.status = st
	t.haveRegs = false
	t.haveSi = false
	t.groupStop = false
	t.syscalled = false
	t.requeued = false
	t.stay = false
	t.trapIP = 0
	t.noteBirth()
	t.noteWatched()
	t.stepped()
	t.steppedSigreturn()
}

// writeBack gives the registers to the kernel if they were changed.
func (t *Thread) writeBack() error {
	if !t.haveRegs || t.cur == t.orig {
		return nil
	}
	if moved := t.orig; moved.Rip != t.cur.Rip {
		// At a hit only rip changes. Writing one register costs a third of writing all.
		if moved.Rip = t.cur.Rip; moved == t.cur {
			if e := ptrace(unix.PTRACE_POKEUSR, t.tid, ripOffset, uintptr(t.cur.Rip)); e != 0 {
				return t.failed("pokeusr", e)
			}
			t.orig = t.cur
			return nil
		}
	}
	if e := setRegs(t.tid, &t.cur); e != 0 {
		return t.failed("setregs", e)
	}
	t.orig = t.cur
	return nil
}

// ripOffset is where struct user_regs_struct, with which struct user begins,
// has rip (arch/x86/include/asm/user_64.h).
const ripOffset = 128

// cont lets the thread continue from its stop, for one instruction if it is stepping, and
// delivers sig. A thread that job control has stopped is listened to. If the thread is gone,
// that is no error: its end will be reported.
func (t *Thread) cont(sig syscall.Signal) error {
	op := unix.PTRACE_CONT
	if t.resumePoint.left > 0 {
		op = unix.PTRACE_SYSCALL
	}
	switch {
	case t.groupStop:
		op = unix.PTRACE_LISTEN
	case t.stepping:
		op = unix.PTRACE_SINGLESTEP
		t.beginStep()
		if sig != 0 {
			t.stepOpen = false // its handler has a mask of its own
		}
	}
	if !t.stepping && !t.groupStop {
		t.closeStep()
	}
	t.debugOrTell()
	if t.rejoin {
		t.interrupt() // it stops before it executes anything
	}
	err := t.lead(sig)
	if err == nil {
		err = t.request(op, uintptr(sig))
	}
	t.ran()
	if t.moved && !t.stepping {
		if r, ok := t.p.tr.handler.(Resumer); ok {
			r.Resumed(t)
		}
	}
	t.moved = t.stepping
	if pe, ok := err.(*PtraceError); ok && pe.Errno == syscall.ESRCH {
		return nil
	}
	return err
}

func (t *Thread) request(op int, data uintptr) error {
	if e := ptrace(op, t.tid, 0, data); e != 0 {
		return t.failed(requestName(op), e)
	}
	return nil
}

// lead gives the registers to the kernel if they were changed, at a stop that the thread leaves
// with sig.
func (t *Thread) lead(sig syscall.Signal) error {
	if t.kept && sig == 0 {
		switch {
		case t.haveRegs && t.cur != t.orig && t.atTrap():
			if t.changesMore() {
				t.collectAtTrap()
			} else if err := t.promise(); err != nil {
				return err
			}
		case t.atFault():
			t.collect()
		}
	}
	return t.writeBack()
}

// changesMore reports whether more registers of the stop were changed than the instruction
// pointer.
func (t *Thread) changesMore() bool {
	moved := t.orig
	moved.Rip = t.cur.Rip
	return moved != t.cur
}

// ran records that the thread left its stop.
func (t *Thread) ran() {
	t.kept = false
	t.stopped = false
	t.deferred = false
	t.haveRegs = false
}

func requestName(op int) string {
	switch op {
	case unix.PTRACE_CONT:
		return "cont"
	case unix.PTRACE_LISTEN:
		return "listen"
	case unix.PTRACE_SINGLESTEP:
		return "singlestep"
	case unix.PTRACE_SYSCALL:
		return "syscall"
	case unix.PTRACE_DETACH:
		return "detach"
	case unix.PTRACE_INTERRUPT:
		return "interrupt"
	}
	return "request"
}

// deliver lets the thread continue and gives it the signals that it is owed: those held back
// during a step and then, if current, the one that stopped it, whose siginfo is in t.si. A
// fault comes before held signals.
//
// Only a stop on the way to a signal's delivery can pass on a siginfo. From any other stop, and
// for all but the first signal, a stand-in of the same number is sent to the thread. When that
// stops it, its siginfo is replaced by the owed one (see swapOwed).
func (t *Thread) deliver(current bool) error {
	switch {
	case current && t.si.Synchronous():
		// The fault comes first: it is about the instruction that the thread is at, and after another
		// handler was entered it would seem to be about that handler.
		t.held = append([]Siginfo{t.si}, t.held...)
	case current:
		t.held = append(t.held, t.si)
	}
	if len(t.held) == 0 {
		return t.cont(0)
	}
	var now syscall.Signal
	if t.inDelivery() {
		first := t.held[0]
		t.held = t.held[1:]
		if e := setSiginfo(t.tid, &first); e != 0 && e != syscall.ESRCH {
			return t.failed("setsiginfo", e)
		}
		now = first.Signal()
	}
	for i := range t.held {
		if unix.Tgkill(t.p.pid, t.tid, t.held[i].Signal()) != nil {
			break // the thread is gone
		}
	}
	t.owed = append(t.owed, t.held...)
	t.held = t.held[:0]
	return t.cont(now)
}

// inDelivery reports whether the stop is on the way to the delivery of a signal. Any signal can
// be delivered from such a stop.
func (t *Thread) inDelivery() bool {
	return t.status>>16 == 0 && t.status.StopSignal()&0x80 == 0 && !t.syscalled
}
