//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/symbols"
)

// Thread is one traced thread. It is used on the tracer's thread only.
type Thread struct {
	tid int
	p   *Process

	stopped    bool
	gone       bool
	status     syscall.WaitStatus // of the present stop
	deferred   bool               // the present stop's event is not handled yet
	announced  bool               // the handler knows the thread
	exitSeen   bool               // ThreadExit was called
	stepping   bool               // a verdict asked for one instruction
	moved      bool               // it has left its last stop to execute one
	interrupts bool               // PTRACE_INTERRUPT was sent, and no stop was seen since
	groupStop  bool               // job control has stopped it: it is listened to, not continued
	rejoin     bool               // it left a job control stop for the tracer, and must return to it
	syscalled  bool               // an injected call ran since the stop: its signal can't be delivered from here
	requeued   bool               // the signal that the Handler is asked about was put back for a call
	stay       bool               // a verdict said Stay
	busy       bool               // its event is being handled
	mayLeave   bool               // it stands in the stop of a birth, which LetRun may end
	haveSi     bool               // si is that of the present stop

	kept   bool   // the present stop is not collected
	trapIP uint64 // the address behind the int3 of the present stop; 0: none, or not examined

	haveRegs  bool
	cur, orig unix.PtraceRegs // the registers as the handler has changed them, and as the kernel has them

	pushesFlags bool         // the instruction that is stepped is a pushf
	stepFrom    uint64       // address of the instruction that is stepped
	stepPlain   bool         // it is neither an int1 nor a system call
	stepCall    bool         // it is a system call
	stepOpen    bool         // SIGTRAP is not in the thread's mask, for its steps
	stepMask    uint64       // the program's mask, if SIGTRAP was removed from it; else 0
	frameAt     symbols.Addr // address of the mask in the frame that rt_sigreturn is about to restore; 0: none
	frameSteps  bool         // the flags in that frame have the trap flag
	frameMask   uint64       // that mask, if SIGTRAP was removed from it; else 0

	debt        *injection  // the injected call that was given up and that it is still in; nil: none
	resumePoint resumePoint // what is known of its return from a signal handler

	held []Siginfo // signals to deliver once a step is over, oldest first
	owed []Siginfo // signals whose stand-ins are under way, oldest first

	waitsIn, waitsIP uint64 // the last wait with a restart block, and its instruction

	comm      string
	commAt    time.Time
	rseq      uint64       // address of the rseq area; 0 is none
	checks    uint32       // breakpoint stops, for the schedule of checkForced
	doubtful  bool         // its present trap may have removed SIGTRAP from its mask (trapGuard)
	trapMask  uint64       // its mask before OpenTraps changed it; 0: it wasn't changed
	trapFrame symbols.Addr // the frame of the signal whose handler blocked SIGTRAP at OpenTraps; 0: none
	watches   *WatchSet    // the memory that its debug registers watch; nil: none
	hits      uint8        // the debug registers that saw the access at the present stop, one bit each
	watching  *WatchSet    // the memory that they watched at that access
	told      bool         // the handler was told of that access
	si        Siginfo
}

// TID returns the thread's id in the tracer's PID namespace.
func (t *Thread) TID() int { return t.tid }

// Process returns the process that the thread belongs to.
func (t *Thread) Process() *Process { return t.p }

// Stopped reports whether the thread is in a ptrace stop.
func (t *Thread) Stopped() bool { return t.stopped && !t.gone }

// Regs returns the registers of the stopped thread. They are read once per stop. Changes that
// the caller makes in them are written just before the thread continues. Errors are ErrGone and
// ErrRunning.
func (t *Thread) Regs() (*unix.PtraceRegs, error) {
	if t.haveRegs {
		return &t.cur, nil
	}
	if t.gone {
		return nil, ErrGone
	}
	if !t.stopped {
		return nil, ErrRunning
	}
	if e := getRegs(t.tid, &t.orig); e != 0 {
		return nil, &PtraceError{"getregs", t.tid, e}
	}
	t.cur = t.orig
	t.haveRegs = true
	return &t.cur, nil
}

// SetRegs replaces the registers of the stopped thread. They are written just before the thread
// continues.
func (t *Thread) SetRegs(r *unix.PtraceRegs) error {
	if _, err := t.Regs(); err != nil {
		return err
	}
	if err := t.p.asks(Request{Kind: RequestSetRegs}); err != nil {
		return fmt.Errorf("set the registers of thread %d: %w", t.tid, err)
	}
	t.cur = *r
	return nil
}

// FetchRegs converts r to the form that fetch programs read.
func FetchRegs(r *unix.PtraceRegs, into *fetch.Regs) {
	into.GPR = [16]uint64{
		fetch.AX: r.Rax, fetch.CX: r.Rcx, fetch.DX: r.Rdx, fetch.BX: r.Rbx,
		fetch.SP: r.Rsp, fetch.BP: r.Rbp, fetch.SI: r.Rsi, fetch.DI: r.Rdi,
		fetch.R8: r.R8, fetch.R9: r.R9, fetch.R10: r.R10, fetch.R11: r.R11,
		fetch.R12: r.R12, fetch.R13: r.R13, fetch.R14: r.R14, fetch.R15: r.R15,
	}
	into.IP = r.Rip
	into.Flags = r.Eflags
	into.OrigAX = r.Orig_rax
	into.FSBase, into.GSBase = r.Fs_base, r.Gs_base
	into.CS, into.SS, into.DS = r.Cs, r.Ss, r.Ds
	into.ES, into.FS, into.GS = r.Es, r.Fs, r.Gs
}

// Vector reads the vector registers of the stopped thread.
func (t *Thread) Vector() (*fetch.Vector, error) {
	var f fpRegs
	if e := getFPRegs(t.tid, &f); e != 0 {
		return nil, t.failed("getfpregs", e)
	}
	v := new(fetch.Vector)
	for i := range v {
		copy(v[i][:], f[vectorAt(i):])
	}
	return v, nil
}

// vectorAt returns the offset in struct user_fpregs_struct of a register of a Vector: in
// xmm_space, or st_space.
func vectorAt(i int) int {
	if i >= 16 {
		return 32 + 16*(i-16)
	}
	return 160 + 16*i
}

// SetVector changes the vector registers of the stopped thread, at once.
func (t *Thread) SetVector(v *fetch.Vector) error {
	var f fpRegs
	if e := getFPRegs(t.tid, &f); e != 0 {
		return t.failed("getfpregs", e)
	}
	for i := range v {
		copy(f[vectorAt(i):], v[i][:])
	}
	if e := setFPRegs(t.tid, &f); e != 0 {
		return t.failed("setfpregs", e)
	}
	return nil
}

// SigMask returns the set of signals that the stopped thread blocks. Bit n-1 is signal n.
func (t *Thread) SigMask() (uint64, error) {
	m, e := getSigmask(t.tid)
	if e != 0 {
		return 0, t.failed("getsigmask", e)
	}
	return m, nil
}

// SetSigMask replaces the set of blocked signals.
func (t *Thread) SetSigMask(m uint64) error {
	if e := setSigmask(t.tid, m); e != 0 {
		return t.failed("setsigmask", e)
	}
	return nil
}

// Blocked reports whether the stopped thread blocks sig.
func (t *Thread) Blocked(sig syscall.Signal) (bool, error) {
	m, err := t.SigMask()
	return m&sigBit(sig) != 0, err
}

func sigBit(sig syscall.Signal) uint64 { return 1 << (uint(sig) - 1) }

// readSiginfo reads the siginfo of the present stop into t.si.
func (t *Thread) readSiginfo() error {
	if t.haveSi {
		return nil
	}
	if e := getSiginfo(t.tid, &t.si); e != 0 {
		return t.failed("getsiginfo", e)
	}
	if t.p.tr.untold && t.si.Code() == trapTrace {
		binary.LittleEndian.PutUint32(t.si[8:], trapBrkpt)
	}
	t.haveSi = true
	return nil
}

// SetSiginfo replaces the siginfo of the signal that stopped the thread. The program's handler
// sees it if the verdict is Deliver, or if it is Step and the signal is delivered afterwards.
func (t *Thread) SetSiginfo(si *Siginfo) error {
	if e := setSiginfo(t.tid, si); e != 0 {
		return t.failed("setsiginfo", e)
	}
	t.si = *si
	return nil
}

// Signal returns the signal whose event is pending in a thread that was found stopped (in
// WithStopped, or the prepare function of Detach). ok is false if there is none.
func (t *Thread) Signal() (sig syscall.Signal, ok bool) {
	if !t.deferred || t.status>>16 != 0 {
		return 0, false
	}
	return t.status.StopSignal(), true
}

// AtTrap reports whether the pending event of a thread that was found stopped is that of an
// int3. The thread has then executed nothing after the int3, although its instruction pointer
// is there.
func (t *Thread) AtTrap() bool {
	sig, ok := t.Signal()
	return ok && sig == syscall.SIGTRAP && t.readSiginfo() == nil && t.si.Code() == siKernel
}

// Stepping reports whether the thread is executing the one instruction that a verdict Step
// asked for, or has executed it and Stepped was not called yet.
func (t *Thread) Stepping() bool { return t.stepping }

// CancelStep makes the thread run freely from where its registers say. Stepped will not be
// called. It is for a handler that takes a stopped thread out of a copy.
func (t *Thread) CancelStep() {
	t.stepping = false
	if t.deferred && t.status>>16 == 0 && t.status.StopSignal() == syscall.SIGTRAP {
		t.status = stopStatus
	}
}

// DropTrap drops the pending trap of an int3 in a thread that was found stopped, and reports
// whether there was one. The caller decides where the thread continues.
func (t *Thread) DropTrap() bool {
	if !t.AtTrap() || !t.atTrap() {
		return false
	}
	t.status = stopStatus
	return true
}

// DropFault drops the pending signal of a fault in a thread that was found stopped, and reports
// whether there was one. The instruction has had no effect. The caller decides where the thread
// continues.
func (t *Thread) DropFault(sig syscall.Signal) bool {
	if now, ok := t.Signal(); !ok || now != sig || t.readSiginfo() != nil || !t.si.Synchronous() {
		return false
	}
	t.status = stopStatus
	return true
}

// stopStatus is the status of a stop that PTRACE_INTERRUPT made.
const stopStatus = syscall.WaitStatus(unix.PTRACE_EVENT_STOP<<16 | int(syscall.SIGTRAP)<<8 | 0x7f)

// Resume lets a thread continue that the verdict Stay keeps stopped.
func (t *Thread) Resume() error {
	if t.gone {
		return ErrGone
	}
	if !t.stopped {
		return ErrRunning
	}
	t.stay = false
	if t.p.held > 0 {
		return nil
	}
	return t.cont(0)
}

// failed makes the error of a ptrace call. For a thread that was killed in its stop the call
// returns ESRCH.
func (t *Thread) failed(op string, e syscall.Errno) error {
	return &PtraceError{op, t.tid, e}
}
