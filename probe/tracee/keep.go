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
// If a tracer dies, its threads run on, each with the signal that stopped it. But if the tracer
// had collected the stop, the kernel has forgotten the signal (kernel/exit.c,
// wait_task_stopped). A thread that had hit an int3 would then continue after the int3, in the
// middle of an instruction. So the stop of a signal is looked at (WNOWAIT) and not collected,
// until the tracer waits for the next stop of any thread. At an int3 the states are:
//
//	kept       the registers are those of the trap, the signal is SIGTRAP. If the tracer dies, the
//	           program's fallback handler leads the thread on.
//	promised   the siginfo says where the thread continues (PromiseCode). The registers are
//	           still those of the trap, or already the new ones. The fallback handler leads
//	           the thread there.
//	resumed    PTRACE_CONT has replaced the signal.
//
// The fallback handler only knows where to continue. So if more registers change than the
// instruction pointer, as for a call that is made to return at once, the thread is first set
// back to its int3 and the stop collected. Then all registers are written in one piece. If the
// tracer dies before that, the thread meets the int3 again.
//
// A fault that isn't delivered is raised again by the instruction, the program's or kprobe's,
// unless the registers change. The states:
//
//	kept       the registers are those of the fault, and so is the signal: the fallback handler, or
//	           the program's, is called as without a tracer.
//	collected  before the registers change. If the tracer dies, the thread continues where they
//	           lead, and may fault again. Delivered there, the signal would be about an
//	           instruction that nobody knows.
//
// A thread that stays stopped while others are waited for is first set back to its int3; then
// the stop is collected. To everybody but the kernel its registers still seem to be those of
// the trap.

// PromiseCode is the si_code of a SIGTRAP that says: the thread continues at si_addr. Only a
// tracer can make it, because positive codes are the kernel's.
const PromiseCode = 0x6b70

// look is wait without collecting the stop of a signal. kept reports that it was not collected.
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

// collect makes the kernel forget a stop that was kept. The thread stays stopped.
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

// atFault reports whether the present stop is for a fault of the thread itself.
func (t *Thread) atFault() bool {
	return t.readSiginfo() == nil && t.si.Synchronous() && t.si.Signal() != syscall.SIGTRAP
}

// atTrap reports whether the present stop is for an int3, and notes where.
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

// setBack gives the kernel the registers from before the int3 or, if they were changed, those
// with which the thread continues.
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

// before returns the address of the int3 for the address after it, if the present stop is for
// one. It returns any other address unchanged.
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

// promise writes into the stop's siginfo where the thread continues, before its registers are
// changed. The siginfo that it replaces must have been read if it is still needed.
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

// collectAtTrap collects the kept stop of an int3. To the kernel the thread is then at the
// int3, before it. Its final registers are still to be written.
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
