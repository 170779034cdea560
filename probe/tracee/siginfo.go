//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"syscall"

	"kprobe/symbols"
)

// Values of si_code (include/uapi/asm-generic/siginfo.h).
const (
	siUser    = 0
	siTkill   = -6
	siKernel  = 0x80
	trapBrkpt = 1
	trapTrace = 2
	// trapHwbkpt is the code of a debug register's trap.
	trapHwbkpt = 4
)

// Siginfo is a siginfo_t as the kernel lays it out.
type Siginfo [128]byte

// Signal returns si_signo.
func (s *Siginfo) Signal() syscall.Signal {
	return syscall.Signal(int32(binary.LittleEndian.Uint32(s[0:])))
}

// Code returns si_code: positive if the kernel sent the signal for a reason (SEGV_MAPERR …;
// SI_KERNEL is 0x80), 0 or negative if a process sent it.
func (s *Siginfo) Code() int { return int(int32(binary.LittleEndian.Uint32(s[8:]))) }

// PID returns si_pid, the sender, if Code says that there is one.
func (s *Siginfo) PID() int { return int(int32(binary.LittleEndian.Uint32(s[16:]))) }

// Addr returns si_addr, the faulting address of SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGTRAP.
func (s *Siginfo) Addr() symbols.Addr {
	return symbols.Addr(binary.LittleEndian.Uint64(s[16:]))
}

// SetAddr changes si_addr in this copy. Thread.SetSiginfo gives it to the program.
func (s *Siginfo) SetAddr(a symbols.Addr) { binary.LittleEndian.PutUint64(s[16:], uint64(a)) }

// Synchronous reports whether the thread's own instruction raised the signal:
// it is a fault or trap and no process sent it.
func (s *Siginfo) Synchronous() bool {
	switch s.Signal() {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGTRAP:
		return s.Code() > 0
	}
	return false
}

// filtered reports whether a filter has trapped the thread's own system call.
func (s *Siginfo) filtered() bool {
	const sysSeccomp = 1
	return s.Signal() == syscall.SIGSYS && s.Code() == sysSeccomp
}

// Stepped reports whether an instruction was executed with the trap flag set. Here it is the
// program that set the flag. The trap of an int1 looks the same if the instruction is one. The
// trap of a step says TRAP_BRKPT after a system call, and now and then in virtual machines
// (Thread.endsStep).
func (s *Siginfo) Stepped() bool {
	return s.Signal() == syscall.SIGTRAP && (s.Code() == trapTrace || s.Code() == trapBrkpt)
}

// comesAgain reports whether the signal is that of a fault which the instruction raises again
// when it is executed again. Faults of broken memory are not.
func (s *Siginfo) comesAgain() bool {
	const mceAR, mceAO = 4, 5
	switch s.Signal() {
	case syscall.SIGSEGV, syscall.SIGILL, syscall.SIGFPE:
		return s.Code() > 0
	case syscall.SIGBUS:
		return s.Code() > 0 && s.Code() != mceAR && s.Code() != mceAO
	}
	return false
}

// isStopSignal reports whether the default action of a signal is to stop the process.
func isStopSignal(s syscall.Signal) bool {
	switch s {
	case syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
		return true
	}
	return false
}
