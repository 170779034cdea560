//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// A stop and the tracer's death
//
// A tracer that dies lets its threads run on, each with the signal that
// stopped it, unless the tracer has collected the stop: then the kernel has
// forgotten the signal (kernel/exit.c, wait_task_stopped), and a thread that
// has hit an int3 would go on behind the int3, in the middle of an instruction.
// So the stop of a signal is looked at (WNOWAIT) and not collected, as long as
// nobody waits for the next of any thread. At an int3 the states are:
//
//	kept       the registers are those of the trap, the signal SIGTRAP: should
//	           the tracer die, the program's fallback handler leads the thread on.
//	promised   the siginfo says where the thread goes on (PromiseCode), the
//	           registers are those of the trap or, next, the new ones: the fallback handler
//	           leads the thread there.
//	resumed    PTRACE_CONT has replaced the signal.
//
// The fallback handler knows of nothing but where to go on. So where more registers
// are changed than that one, as by who has a call return at once, the thread is set
// back to its int3, the stop collected, and then all are written in one piece: until
// then it would meet the int3 anew.
//
// At a fault that isn't delivered, which the program's instruction, or one of ours,
// raises again unless the registers are changed:
//
//	kept       the registers are those of the fault, the signal is that: the fallback handler, or
//	           the program's handler, is what it would be without a tracer.
//	collected  before the registers are changed: should the tracer die the thread goes
//	           on where they lead, and may fault again. Delivered there, the signal
//	           would be of an instruction that nobody knows.
//
// A thread that stays stopped while others are waited for is set back to its
// int3 first; then the stop is collected. Its registers seem to be those of
// the trap to everybody but the kernel.

// PromiseCode is the si_code of a SIGTRAP that only a tracer can make, as
// positive codes are the kernel's: the thread goes on at si_addr.
const PromiseCode = 0x6b70

// look is wait that leaves the stop of a signal uncollected; kept reports that.
func look(tid int, status *uint32, flags int) (n int, kept bool, e syscall.Errno) {
	info, e := waitid(tid, flags|unix.WNOWAIT|unix.WEXITED|unix.WSTOPPED|unix.WALL|unix.WNOTHREAD)
	if e != 0 {
		return -1, false, e
	}
	n = int(int32(binary.LittleEndian.Uint32(info[16:])))
	if n == 0 {
		return 0, false, 0
	}
	const cldTrapped = 4
	if st := binary.LittleEndian.Uint32(info[24:]); info[8] == cldTrapped && st < 0x80 {
		*status = st<<8 | 0x7f
		return n, true, 0
	}
	m, e := wait(n, status, flags|unix.WNOHANG)
	if e == 0 && m == 0 {
		e = syscall.EINTR // another stop has taken its place
	}
	return m, false, e
}

// collect has the kernel forget a stop that was kept. The thread stays stopped.
func (t *Thread) collect() {
	if !t.kept {
		return
	}
	t.kept = false
	if t.stopped && t.atTrap() {
		t.setBack()
	}
	_, _ = waitid(t.tid, unix.WSTOPPED|unix.WNOHANG|unix.WALL|unix.WNOTHREAD) // fails only if the thread is gone
}

// atFault reports whether the present stop is that of a fault of the thread's own.
func (t *Thread) atFault() bool {
	return t.readSiginfo() == nil && t.si.Synchronous() && t.si.Signal() != syscall.SIGTRAP
}

// atTrap reports whether the present stop is that of an int3, and notes where.
func (t *Thread) atTrap() bool {
	if t.trapIP != 0 {
		return true
	}
	if t.status>>16 != 0 || t.status.StopSignal() != syscall.SIGTRAP || t.syscalled {
		return false
	}
	if t.readSiginfo() != nil || t.si.Code() != siKernel {
		return false
	}
	if _, err := t.Regs(); err != nil {
		return false
	}
	t.trapIP = t.orig.Rip
	return true
}

// setBack gives the kernel the registers of before the int3, or those that the
// thread is to go on with if they were changed.
func (t *Thread) setBack() {
	if t.promise() != nil {
		return // gone
	}
	r := t.cur
	r.Rip = t.before(r.Rip)
	if setRegs(t.tid, &r) == 0 {
		t.orig = r
	}
}

// before gives the address of the int3 for the address behind it, where the
// present stop is one's, and any other as it is.
func (t *Thread) before(rip uint64) uint64 {
	if rip != t.trapIP || rip == 0 {
		return rip
	}
	var b [2]byte
	if _, err := t.p.ReadMemory(b[:], symbols.Addr(rip-2)); err == nil && b == [...]byte{0xcd, 3} {
		return rip - 2
	}
	return rip - 1
}

// promise writes into the stop's siginfo where the thread goes on, before its
// registers are changed. What it replaces has been read if it is still needed.
func (t *Thread) promise() error {
	var si Siginfo
	binary.LittleEndian.PutUint32(si[0:], uint32(syscall.SIGTRAP))
	binary.LittleEndian.PutUint32(si[8:], PromiseCode)
	si.SetAddr(symbols.Addr(t.before(t.cur.Rip)))
	if e := setSiginfo(t.tid, &si); e != 0 {
		return t.failed("setsiginfo", e)
	}
	return nil
}

// collectAtTrap collects the kept stop of an int3, at which the kernel has the thread
// then, before its registers. What they are to be is still to be written.
func (t *Thread) collectAtTrap() {
	to := t.cur
	t.cur = t.orig
	t.collect()
	t.cur = to
}

// collectKept collects the stops of the threads that were left stopped.
func (t *Tracer) collectKept() {
	for _, th := range t.kept {
		th.collect()
	}
	t.kept = t.kept[:0]
}

// keep notes that a thread's stop is not collected.
func (t *Tracer) keep(th *Thread) {
	th.kept = true
	t.kept = append(t.kept, th)
}
