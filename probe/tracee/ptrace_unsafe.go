//go:build linux && amd64

package tracee

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The raw calls. None of them except seize blocks for long, so they don't tell the scheduler.
// All run on the tracer's thread.

func ptrace(op, tid int, addr, data uintptr) syscall.Errno {
	step()
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, uintptr(op), uintptr(tid), addr, data, 0, 0)
	return e
}

func ioctl(fd int, op uintptr, b []byte) syscall.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), op, uintptr(unsafe.Pointer(&b[0])))
	return e
}

// seize waits while the thread's process is in execve. That may take long: the file system may
// not answer, or somebody may be asked whether the program may be executed. The scheduler must
// know, because otherwise nothing else of this process would run.
func seize(tid, options int) syscall.Errno {
	step()
	_, _, e := syscall.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, uintptr(options), 0, 0)
	return e
}

func getRegs(tid int, r *unix.PtraceRegs) syscall.Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETREGS, uintptr(tid), 0, uintptr(unsafe.Pointer(r)), 0, 0)
	return e
}

func setRegs(tid int, r *unix.PtraceRegs) syscall.Errno {
	step()
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SETREGS, uintptr(tid), 0, uintptr(unsafe.Pointer(r)), 0, 0)
	return e
}

func eventMessage(tid int) (int, syscall.Errno) {
	var m uint64
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETEVENTMSG, uintptr(tid), 0, uintptr(unsafe.Pointer(&m)), 0, 0)
	return int(m), e
}

func getSiginfo(tid int, si *Siginfo) syscall.Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(tid), 0, uintptr(unsafe.Pointer(si)), 0, 0)
	return e
}

func setSiginfo(tid int, si *Siginfo) syscall.Errno {
	step()
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SETSIGINFO, uintptr(tid), 0, uintptr(unsafe.Pointer(si)), 0, 0)
	return e
}

func getSigmask(tid int) (uint64, syscall.Errno) {
	var m uint64
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGMASK, uintptr(tid), 8, uintptr(unsafe.Pointer(&m)), 0, 0)
	return m, e
}

func setSigmask(tid int, m uint64) syscall.Errno {
	step()
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SETSIGMASK, uintptr(tid), 8, uintptr(unsafe.Pointer(&m)), 0, 0)
	return e
}

// fpRegs is struct user_fpregs_struct, the FXSAVE image.
type fpRegs [512]byte

func getFPRegs(tid int, f *fpRegs) syscall.Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETFPREGS, uintptr(tid), 0, uintptr(unsafe.Pointer(f)), 0, 0)
	return e
}

func setFPRegs(tid int, f *fpRegs) syscall.Errno {
	step()
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SETFPREGS, uintptr(tid), 0, uintptr(unsafe.Pointer(f)), 0, 0)
	return e
}

// ntX86XState is NT_X86_XSTATE of include/uapi/linux/elf.h.
const ntX86XState = 0x202

// getXState fills b with the thread's XSAVE image in the standard format and
// returns how many bytes it has.
func getXState(tid int, b []byte) (int, syscall.Errno) {
	v := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETREGSET, uintptr(tid), ntX86XState, uintptr(unsafe.Pointer(&v)), 0, 0)
	return int(v.Len), e
}

func setXState(tid int, b []byte) syscall.Errno {
	v := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SETREGSET, uintptr(tid), ntX86XState, uintptr(unsafe.Pointer(&v)), 0, 0)
	return e
}

// rseqConfiguration is struct ptrace_rseq_configuration.
type rseqConfiguration struct {
	Pointer   uint64
	Size      uint32
	Signature uint32
	Flags     uint32
	_         uint32
}

func getRseq(tid int, c *rseqConfiguration) syscall.Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GET_RSEQ_CONFIGURATION, uintptr(tid), unsafe.Sizeof(*c), uintptr(unsafe.Pointer(c)), 0, 0)
	return e
}

// wait is wait4 for a traced thread or a child of this thread alone; tid -1 is any. Children of
// other threads of this process are left to them.
func wait(tid int, status *uint32, flags int) (int, syscall.Errno) {
	n, _, e := syscall.Syscall6(unix.SYS_WAIT4, uintptr(tid), uintptr(unsafe.Pointer(status)),
		uintptr(flags|unix.WALL|unix.WNOTHREAD), 0, 0, 0)
	return int(n), e
}

// waitid returns the siginfo of a status of a traced thread or a child; tid -1 is any. If there
// is none (WNOHANG), it is all zeros.
func waitid(tid, flags int) (info [128]byte, e syscall.Errno) {
	which, id := unix.P_PID, tid
	if tid < 0 {
		which, id = unix.P_ALL, 0
	}
	_, _, e = syscall.Syscall6(unix.SYS_WAITID, uintptr(which), uintptr(id), uintptr(unsafe.Pointer(&info)), uintptr(flags), 0, 0)
	return info, e
}

// vmRead reads memory of a process by process_vm_readv.
func vmRead(pid int, b []byte, at uint64) (int, syscall.Errno) {
	if len(b) == 0 {
		return 0, 0
	}
	local := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	remote := unix.RemoteIovec{Base: uintptr(at), Len: len(b)}
	n, _, e := syscall.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// sigaction is struct kernel_sigaction of x86-64.
type sigaction struct {
	Handler  uint64
	Flags    uint64
	Restorer uint64
	Mask     uint64
}

func rtSigaction(sig syscall.Signal, act, old *sigaction) syscall.Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(act)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
	return e
}

// peek and poke move one word; the last way to memory that /proc/PID/mem
// refuses.
func peek(tid int, at uint64) (uint64, syscall.Errno) {
	var w uint64
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKDATA, uintptr(tid), uintptr(at), uintptr(unsafe.Pointer(&w)), 0, 0)
	return w, e
}

func poke(tid int, at, w uint64) syscall.Errno {
	return ptrace(unix.PTRACE_POKEDATA, tid, uintptr(at), uintptr(w))
}

// peekUser reads a word of struct user.
func peekUser(tid int, off uintptr) (uint64, syscall.Errno) {
	var w uint64
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKUSR, uintptr(tid), off, uintptr(unsafe.Pointer(&w)), 0, 0)
	return w, e
}

// ownPending reports whether a SIGTRAP, or the signal of a fault or of a system call that a
// filter traps, waits in the thread's own queue and is not blocked. The thread has raised it,
// and the kernel will report it next, though any number of other signals may come first.
func ownPending(tid int) bool {
	args := struct {
		Off   uint64
		Flags uint32
		N     int32
	}{N: 16}
	var queue [16]Siginfo
	for {
		n, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKSIGINFO, uintptr(tid),
			uintptr(unsafe.Pointer(&args)), uintptr(unsafe.Pointer(&queue)), 0, 0)
		if e != 0 {
			return false
		}
		for i := range queue[:n] {
			if own := &queue[i]; own.Signal() == syscall.SIGTRAP || own.Synchronous() || own.filtered() {
				mask, e := getSigmask(tid)
				if e != 0 || mask&sigBit(own.Signal()) == 0 {
					return e == 0
				}
			}
		}
		if n < uintptr(len(queue)) {
			return false
		}
		args.Off += uint64(n)
	}
}

// seccompFilter reads the n-th filter of a stopped thread. ENOENT says that there are fewer.
func seccompFilter(tid, n int) ([]unix.SockFilter, syscall.Errno) {
	rules := make([]unix.SockFilter, unix.BPF_MAXINSNS)
	got, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SECCOMP_GET_FILTER, uintptr(tid), uintptr(n), uintptr(unsafe.Pointer(&rules[0])), 0, 0)
	if e != 0 {
		return nil, e
	}
	return rules[:min(int(got), unix.BPF_MAXINSNS)], 0
}
