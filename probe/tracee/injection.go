//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// injection is a call in progress in a stopped thread.
type injection struct {
	t        *Thread
	saved    unix.PtraceRegs // the registers with which the thread continues
	start    unix.PtraceRegs // saved, without a system call to restart
	mask     uint64
	blocks   uint64         // the signals that the call blocks
	pass     syscall.Signal // the signal that the kernel gets with the next step; 0 is none
	xstate   []byte
	room     *room
	image    []byte
	frame    uint64
	restoreX bool
	suspend  bool   // seccomp is suspended, until restore
	entry    bool   // the last stop was that of a system call's entry
	first    uint64 // address of the first injected instruction
	raised   bool   // a fault from before was dropped
	begun    uint64 // where the thread continues if the tracer is killed
}

// prepareInjection saves the context of t, in the tracer and in the process.
func (t *Thread) prepareInjection(ret uint64, stack bool) (in *injection, err error) {
	if t.status>>16 == 0 && t.inDelivery() && !t.busy {
		// This must be done now: only from this stop does the kernel restart the call, and the thread
		// may be left from another.
		t.hideSignal(t.status.StopSignal())
	}
	regs, err := t.Regs()
	if err != nil {
		return nil, err
	}
	in = &injection{t: t, saved: *regs}
	in.start = in.saved
	in.start.Orig_rax = negative(-1)
	in.start.Eflags &^= trapFlag // set if the program steps itself
	if in.mask, err = t.SigMask(); err != nil {
		return nil, err
	}
	in.blocks, in.pass = t.callMask(in.mask), t.requeues()
	buf := make([]byte, maxXState)
	n, e := getXState(t.tid, buf)
	if e != 0 {
		return nil, t.failed("getregset", e)
	}
	if n < xstateMin {
		return nil, fmt.Errorf("XSAVE image of %d bytes: %w", n, ErrNoRoom)
	}
	in.xstate = buf[:n]
	// After the call the kernel no longer has the siginfo of this stop.
	if t.status>>16 == 0 {
		if err := t.readSiginfo(); err != nil {
			return nil, err
		}
	}
	if to, ok := t.abortedSequence(in.saved.Rip); ok {
		in.saved.Rip = to
	}
	if in.pass == 0 {
		t.collect()
	}
	begun, _ := t.begun(&in.saved)
	if t.atTrap() {
		begun.Rip = t.before(begun.Rip) // where it continues if the tracer is killed
	}
	in.begun = begun.Rip
	image, _ := buildFrame(0, &begun, in.mask, in.xstate, 0)
	if in.room, err = t.p.findRoom(&in.saved, len(image), stack); err != nil {
		return nil, err
	}
	in.image, in.frame = buildFrame(in.room.base, &begun, in.mask, in.xstate, in.room.code+ret)
	if in.suspend, err = t.suspendSeccomp(); err != nil {
		return nil, err
	}
	suspended := in.suspend
	defer func() {
		if err != nil && suspended {
			_ = t.resumeSeccomp() // fails only if the thread is gone
		}
	}()
	if err := t.p.WriteMemory(in.image, symbols.Addr(in.room.base)); err != nil {
		return nil, err
	}
	if in.room.saved != nil {
		if err := t.p.WriteMemory(InjectedCode(), symbols.Addr(in.room.code)); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// run lets the thread run from r until done says so, and restores its context. The order of the
// steps keeps the thread safe wherever the tracer dies: signals are blocked only while the
// registers lead to rt_sigreturn, which sets the mask; and the thread runs to system call
// stops, because single steps would leave the trap flag behind.
func (in *injection) run(ctx context.Context, r *unix.PtraceRegs, done func(st syscall.WaitStatus) (uint64, bool, error)) (uint64, error) {
	t := in.t
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(injectPatience)
	}
	cancel := t.p.tr.wakeAt(min(stopGrace, time.Until(deadline)))
	defer cancel()
	wasStopped := t.groupStop
	original, originalDeferred, requeued := t.status, t.deferred, in.pass != 0
	in.first = r.Rip
	if e := setRegs(t.tid, r); e != 0 {
		return 0, t.failed("setregs", e)
	}
	t.haveRegs = false
	if e := setSigmask(t.tid, in.blocks); e != 0 {
		_, err := in.restore(false)
		return 0, errors.Join(t.failed("setsigmask", e), err)
	}
	var result uint64
	var err error
	for finished := false; !finished; {
		var st syscall.WaitStatus
		st, err = in.next(deadline)
		if late := (*LateError)(nil); errors.Is(err, ErrGone) || errors.As(err, &late) {
			return 0, err
		}
		if st>>16 == unix.PTRACE_EVENT_STOP {
			wasStopped = st.StopSignal() != syscall.SIGTRAP
		}
		if err != nil {
			if st>>16 == 0 && st.StopSignal() != syscall.SIGTRAP|0x80 {
				err = errors.Join(err, in.keepSignal(st.StopSignal()))
			}
			break
		}
		result, finished, err = done(st)
		if err != nil {
			break
		}
	}
	if err == nil && in.room.after != nil {
		err = in.room.after()
	}
	wasStopped, rerr := in.restore(wasStopped)
	if rerr != nil && (err == nil || errors.Is(rerr, ErrGone)) {
		err = rerr
	}
	if t.Stopped() && !errors.Is(err, ErrGone) {
		t.status, t.deferred, t.syscalled, t.groupStop = original, originalDeferred, true, wasStopped
		if requeued || t.faultsAgain() {
			t.comesAgain()
		}
	}
	return result, err
}

// next resumes the thread and waits for its next stop. It is an error if the thread ends, or
// does not stop before the deadline and the interrupt that follows it.
func (in *injection) next(deadline time.Time) (syscall.WaitStatus, error) {
	t := in.t
	if e := ptrace(unix.PTRACE_SYSCALL, t.tid, 0, uintptr(in.pass)); e != 0 {
		return 0, t.failed("syscall", e)
	}
	t.kept, in.pass = false, 0
	late := false
	for {
		var w uint32
		n, e := wait(t.tid, &w, 0)
		st := syscall.WaitStatus(w)
		switch {
		case e == syscall.EINTR:
			if hasEnded(taskState(t.p.pid, t.tid)) {
				// A killed leader, whose end is reported after its threads'.
				t.ran()
				return 0, ErrGone
			}
			if time.Now().Before(deadline) {
				continue
			}
			if late && time.Now().After(deadline.Add(stopPatience)) {
				t.owe(in)
				return 0, &LateError{PID: t.p.pid, TID: t.tid}
			}
			if !late {
				late = true
				if e := ptrace(unix.PTRACE_INTERRUPT, t.tid, 0, 0); e != 0 {
					return 0, t.failed("interrupt", e)
				}
			}
			continue
		case e != 0 || n != t.tid:
			t.p.tr.ended(t.tid, t, 0)
			return 0, ErrGone
		case !st.Stopped():
			t.p.tr.ended(t.tid, t, st)
			return 0, ErrGone
		case st>>16 == unix.PTRACE_EVENT_EXIT:
			t.note(st)
			t.deferred = true
			t.p.tr.queue = append(t.p.tr.queue, t)
			return 0, ErrGone
		}
		in.entry = st>>16 == 0 && st.StopSignal() == syscall.SIGTRAP|0x80 && !in.entry
		if late {
			return st, ErrTimeout
		}
		return st, nil
	}
}

// syscallDone follows an injected system call from its entry to its exit.
func (in *injection) syscallDone(st syscall.WaitStatus) (uint64, bool, error) {
	switch {
	case st>>16 != 0:
		return 0, false, nil
	case st.StopSignal() != syscall.SIGTRAP|0x80:
		return 0, false, in.keepSignal(st.StopSignal())
	case in.entry:
		return 0, false, nil
	}
	var r unix.PtraceRegs
	if e := getRegs(in.t.tid, &r); e != 0 {
		return 0, false, in.t.failed("getregs", e)
	}
	return r.Rax, true, nil
}

// callDone follows a called function through its own system calls to the rt_sigreturn after its
// return, which it cancels.
func (in *injection) callDone(st syscall.WaitStatus) (uint64, bool, error) {
	if st>>16 != 0 {
		return 0, false, nil
	}
	if st.StopSignal() != syscall.SIGTRAP|0x80 {
		return 0, false, in.keepSignal(st.StopSignal())
	}
	var r unix.PtraceRegs
	if e := getRegs(in.t.tid, &r); e != 0 {
		return 0, false, in.t.failed("getregs", e)
	}
	const returnEnd = codeReturn + 10 // behind the rt_sigreturn
	if r.Rip != in.room.code+returnEnd || r.Orig_rax != unix.SYS_RT_SIGRETURN || !in.entry {
		return 0, false, nil
	}
	if err := in.cancel(&r); err != nil {
		return 0, false, err
	}
	return r.Rdi, true, nil
}

// cancel prevents a system call at whose entry the thread is stopped, with the registers r, and
// takes the thread to the call's exit.
func (in *injection) cancel(r *unix.PtraceRegs) error {
	r.Orig_rax = negative(-1)
	if e := setRegs(in.t.tid, r); e != 0 {
		return in.t.failed("setregs", e)
	}
	_, err := in.next(time.Now().Add(injectPatience))
	return err
}

// keepSignal defers a signal that isn't blocked. A signal that the injected code raised ends
// the injection.
func (in *injection) keepSignal(sig syscall.Signal) error {
	var si Siginfo
	if e := getSiginfo(in.t.tid, &si); e != 0 {
		return in.t.failed("getsiginfo", e)
	}
	if sig == syscall.SIGSYS && si.Code() > 0 {
		if !si.filtered() {
			return ErrDispatched // SYS_USER_DISPATCH
		}
		return ErrSeccomp
	}
	if sig == syscall.SIGTRAP && (si.Code() == trapHwbkpt || si.Code() == trapBrkpt && in.t.watches != nil) {
		return nil // the called function has accessed watched memory
	}
	if si.Synchronous() {
		if !in.raised && sig != syscall.SIGTRAP && in.t.stoppedAt(in.first) {
			// The program's own fault, not yet delivered when the thread was
			// stopped. It comes again, since the instruction does.
			in.raised = true
			return nil
		}
		return fmt.Errorf("%v at %v in the injected code", sig, si.Addr())
	}
	if isStopSignal(sig) || sig == syscall.SIGCONT {
		in.pass = sig // see callMask
		return nil
	}
	in.t.held = append(in.t.held, si)
	return nil
}

// stoppedAt reports whether the thread's instruction pointer is at pc.
func (t *Thread) stoppedAt(pc uint64) bool {
	var r unix.PtraceRegs
	return getRegs(t.tid, &r) == 0 && r.Rip == pc
}

// restore restores the thread's context and leaves the thread stopped. If the kernel still has to
// restart a system call, or a job control stop is to continue, the thread is first taken to a
// stop from which it does. stopped reports whether job control has it stopped there.
func (in *injection) restore(wasStopped bool) (stopped bool, err error) {
	t := in.t
	if in.entry {
		// A call was given up at its entry. With the thread's own registers the kernel would make
		// the system call whose number is in them, that of an earlier call.
		var r unix.PtraceRegs
		if e := getRegs(t.tid, &r); e != 0 {
			return wasStopped, t.failed("getregs", e)
		}
		if err := in.cancel(&r); err != nil {
			return wasStopped, err
		}
	}
	if wasStopped || in.pass != 0 || mustRestart(&in.saved) {
		if wasStopped, err = in.toInterruptStop(); err != nil {
			return wasStopped, err
		}
	}
	if in.restoreX {
		if e := setXState(t.tid, in.xstate); e != 0 {
			return wasStopped, t.failed("setregset", e)
		}
	}
	if e := setSigmask(t.tid, in.mask); e != 0 {
		return wasStopped, t.failed("setsigmask", e)
	}
	back := in.saved
	back.Rip = t.before(back.Rip)
	if e := setRegs(t.tid, &back); e != 0 {
		return wasStopped, t.failed("setregs", e)
	}
	t.stopped = true
	t.cur, t.orig, t.haveRegs = in.saved, back, true
	return wasStopped, in.putBack()
}

// putBack ends what the call needs apart from the thread's own context.
func (in *injection) putBack() error {
	t := in.t
	if in.suspend {
		in.suspend = false
		if err := t.resumeSeccomp(); err != nil {
			return err
		}
	}
	if in.room.saved != nil {
		if err := t.p.WriteMemory(in.room.saved, symbols.Addr(in.room.code)); err != nil {
			return err
		}
	}
	if in.room.wipe {
		under := make([]byte, in.room.buffer+bufferSize-in.room.base)
		copy(under, in.room.under)
		return t.p.WriteMemory(under, symbols.Addr(in.room.base))
	}
	// Nothing may take the frame for that of a signal whose handler is still to return (Interrupted):
	// a thread's stack may lie right below.
	return t.p.WriteMemory(make([]byte, 8), symbols.Addr(in.frame)+mcontextOffset+mcontextFlags)
}

// toInterruptStop takes the thread to a PTRACE_EVENT_STOP without executing an instruction of
// the program. stopped reports whether job control has it stopped there; it may have been
// continued meanwhile.
func (in *injection) toInterruptStop() (stopped bool, err error) {
	if e := ptrace(unix.PTRACE_INTERRUPT, in.t.tid, 0, 0); e != 0 {
		return false, in.t.failed("interrupt", e)
	}
	for {
		st, err := in.next(time.Now().Add(injectPatience))
		if err != nil {
			return false, err
		}
		if st>>16 == unix.PTRACE_EVENT_STOP {
			return st.StopSignal() != syscall.SIGTRAP, nil
		}
	}
}
