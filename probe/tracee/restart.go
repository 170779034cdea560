//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// Results of system calls inside the kernel (include/linux/errno.h).
const (
	eintr                = -4
	erestartSys          = -512
	erestartNoIntr       = -513
	erestartNoHand       = -514
	erestartRestartblock = -516
)

// hideInterrupt makes the kernel restart a system call that a stop by the tracer interrupted.
// Most calls restart by themselves. Some return EINTR to the program even though no handler
// ran. For these the result is replaced by ERESTARTNOHAND: the kernel then restarts the call,
// or returns EINTR after all if a handler runs. The replacement happens at once, so the call
// continues even if the tracer is killed during the stop.
//
// Timeouts that count from the call's start begin anew. The same holds for waits that the
// kernel would end by restart_syscall, if the program's seccomp rules may forbid that call and
// kill the program.
func (t *Thread) hideInterrupt() {
	r, err := t.Regs()
	if err == nil && int64(r.Rax) == erestartRestartblock && r.Orig_rax != unix.SYS_RESTART_SYSCALL {
		t.waitsIn, t.waitsIP = r.Orig_rax, r.Rip-syscallLength
	}
	switch {
	case err != nil:
		return
	case int64(r.Rax) == eintr && restartable(int64(r.Orig_rax)):
	case int64(r.Rax) == erestartRestartblock && blocksRestart(r.Orig_rax) && !t.mayRestart():
	default:
		return
	}
	r.Rax = negative(erestartNoHand)
	if e := setRegs(t.tid, r); e == 0 {
		t.orig = *r
	}
}

// hideSignal is hideInterrupt for the stop of a signal. A signal wakes a traced thread even if
// the program ignores it, or the tracer takes it.
func (t *Thread) hideSignal(sig syscall.Signal) {
	if !isStopSignal(sig) && sig != syscall.SIGCONT {
		t.hideInterrupt()
	}
}

func negative(n int64) uint64 { return uint64(n) }

// restartable reports whether a system call returns EINTR for a wake-up without a handler, and
// has done nothing yet when it does (fs/eventpoll.c, net/core/stream.c and sock_intr_errno with
// a timeout, kernel/signal.c, ipc/sem.c, fs/aio.c, io_uring/io_uring.c).
func restartable(nr int64) bool {
	switch nr {
	case unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2,
		unix.SYS_READ, unix.SYS_READV, unix.SYS_WRITE, unix.SYS_WRITEV,
		unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG,
		unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_SENDFILE,
		unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_CONNECT,
		unix.SYS_RT_SIGTIMEDWAIT,
		unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_MSGRCV, unix.SYS_MSGSND,
		unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS, unix.SYS_IO_URING_ENTER,
		unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_TIMEDSEND,
		unix.SYS_FUTEX, unix.SYS_FUTEX_WAITV, unix.SYS_FLOCK, unix.SYS_GETRANDOM:
		return true
	}
	return false
}

// begun returns regs with the system call as which a wait with a restart block began. After an
// interruption such a wait shows as restart_syscall: as the call that was interrupted again, or
// in rax before the instruction that makes it. That only works as long as the kernel keeps the
// block, and rt_sigreturn drops it. ok is false if the original call can't be known.
func (t *Thread) begun(regs *unix.PtraceRegs) (r unix.PtraceRegs, ok bool) {
	r = *regs
	switch {
	case int64(r.Rax) == erestartRestartblock && int64(r.Orig_rax) >= 0:
		if r.Orig_rax != unix.SYS_RESTART_SYSCALL {
			return r, true
		}
		r.Orig_rax, ok = t.waitAt(r.Rip - syscallLength)
		return r, ok
	case r.Rax == unix.SYS_RESTART_SYSCALL && t.atSyscall(r.Rip):
		if blocksRestart(r.Orig_rax) {
			r.Rax = r.Orig_rax
			return r, true
		}
		r.Rax, ok = t.waitAt(r.Rip)
		return r, ok
	}
	return r, true
}

const syscallLength = 2

// atSyscall reports whether the thread is about to make a system call.
func (t *Thread) atSyscall(ip uint64) bool {
	var b [syscallLength]byte
	_, err := t.p.ReadMemory(b[:], symbols.Addr(ip))
	return err == nil && b == [...]byte{0x0f, 0x05}
}

// waitAt returns which wait the system call instruction at ip made: the one seen at an earlier
// stop, or else the one whose number the preceding instructions load.
func (t *Thread) waitAt(ip uint64) (nr uint64, ok bool) {
	if t.waitsIP == ip && blocksRestart(t.waitsIn) {
		return t.waitsIn, true
	}
	const movEAX, rexB, length, reach = 0xb8, 0x41, 5, 48 // mov eax (or with REX.B r8d …), imm32
	var b [reach]byte
	if _, err := t.p.ReadMemory(b[:], symbols.Addr(ip-reach)); err != nil {
		return unix.SYS_RESTART_SYSCALL, false
	}
	for i := reach - length; i >= 0; i-- {
		if b[i] != movEAX && (b[i]&^7 != movEAX || i == 0 || b[i-1] != rexB) {
			continue
		}
		if nr := uint64(binary.LittleEndian.Uint32(b[i+1:])); blocksRestart(nr) {
			return nr, true
		}
	}
	return unix.SYS_RESTART_SYSCALL, false
}

// blocksRestart reports whether a system call uses a restart block.
func blocksRestart(nr uint64) bool {
	switch nr {
	case unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_POLL, unix.SYS_FUTEX:
		return true
	}
	return false
}
