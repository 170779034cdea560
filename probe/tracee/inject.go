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

// injectPatience bounds an injected call whose context has no deadline.
const injectPatience = 5 * time.Second

// synchronous are the signals that a thread's own instructions raise. They
// stay unblocked during an injection: blocked, they would kill the program.
const synchronous = 1<<(syscall.SIGSEGV-1) | 1<<(syscall.SIGBUS-1) | 1<<(syscall.SIGILL-1) |
	1<<(syscall.SIGFPE-1) | 1<<(syscall.SIGTRAP-1) | 1<<(syscall.SIGSYS-1)

// Syscall makes a thread of the process execute a system call and gives its
// result; an error number comes as a syscall.Errno. t must be stopped; nil
// chooses a thread and stops it for the time of the call. Calls that change
// the restart block (sleeps and waits with a timeout) or create threads must
// not be injected.
//
// Wherever the tracer is killed during the call, the thread goes on with its
// own context; only a wait with a timeout that it had been in begins anew. A
// signal that arrives meanwhile is delivered after, and so is one that t had
// stopped with: it comes again.
//
// The errors are ErrNoThread, ErrNoRoom, ErrSeccomp, ErrTimeout and ErrGone;
// after each the thread is as it was. A thread that waits in the call and can't
// be stopped is *LateError, an ErrTimeout: the call may still have its effect, and
// no other is injected into the process before it has ended (debt.go).
func (p *Process) Syscall(ctx context.Context, t *Thread, nr uintptr, args ...uintptr) (uintptr, error) {
	return p.syscallWith(ctx, t, nr, func(room *room) []uintptr { return args })
}

// SyscallString is Syscall with a first argument that points to s, of at most 255
// bytes and none of them 0, in memory that is the program's again after.
func (p *Process) SyscallString(ctx context.Context, t *Thread, nr uintptr, s string, args ...uintptr) (uintptr, error) {
	b := append([]byte(s), 0)
	if len(b) > bufferSize {
		return 0, fmt.Errorf("string of %d bytes: %w", len(s), syscall.EINVAL)
	}
	return p.SyscallBuilt(ctx, t, nr, func(at uint64) ([]byte, []uintptr) {
		return b, append([]uintptr{uintptr(at)}, args...)
	})
}

// SyscallBuilt is Syscall with memory for its arguments: build gives what is written
// there, of at most 256 bytes, and the arguments, for the address that it has. The
// memory isn't the call's any more when it has returned.
func (p *Process) SyscallBuilt(ctx context.Context, t *Thread, nr uintptr, build func(at uint64) (b []byte, args []uintptr)) (uintptr, error) {
	var werr error
	v, err := p.syscallWith(ctx, t, nr, func(r *room) []uintptr {
		b, args := build(r.buffer)
		if len(b) > bufferSize {
			werr = syscall.EINVAL
			return args
		}
		werr = p.WriteMemory(b, symbols.Addr(r.buffer))
		return args
	})
	return v, errors.Join(err, werr)
}

// syscallWith is Syscall with arguments that may point to the room's buffer.
func (p *Process) syscallWith(ctx context.Context, t *Thread, nr uintptr, args func(*room) []uintptr) (uintptr, error) {
	var result uint64
	err := p.withThread(ctx, t, func(t *Thread) error {
		if err := p.asks(Request{Kind: RequestSyscall, Nr: nr}); err != nil {
			return err
		}
		return p.unasked(func() (err error) {
			result, err = t.makeSyscall(ctx, nr, args)
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("system call %d in process %d: %w", nr, p.pid, err)
	}
	if e := -int64(result); e > 0 && e < pageSize {
		return uintptr(result), syscall.Errno(e)
	}
	return uintptr(result), nil
}

// makeSyscall is syscallWith in a thread that is fit for it.
func (t *Thread) makeSyscall(ctx context.Context, nr uintptr, args func(*room) []uintptr) (uint64, error) {
	in, err := t.prepareInjection(codeReturn, false)
	if err != nil {
		return 0, err
	}
	r := in.start
	r.Rip = in.room.code + codeSyscall
	r.Rsp = in.frame + 8
	r.Rax = uint64(nr)
	dst := [...]*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9}
	for i, a := range args(in.room) {
		if i < len(dst) {
			*dst[i] = uint64(a)
		}
	}
	return in.run(ctx, &r, in.syscallDone)
}

// Call makes a thread of the process call the function at fn with up to six
// integer arguments, on a stack of its own below the saved context, and gives
// what it returns in rax. It is meant for functions that only compute, such as
// the resolvers of IFUNC symbols. t, signals and errors are as for Syscall; a
// fault in the function is an error, and is not seen by the program.
func (p *Process) Call(ctx context.Context, t *Thread, fn symbols.Addr, args ...uint64) (uint64, error) {
	var result uint64
	err := p.withThread(ctx, t, func(t *Thread) error {
		in, err := t.prepareInjection(codeReturn, true)
		if err != nil {
			return err
		}
		in.restoreX = true
		r := in.start
		r.Rip = uint64(fn)
		r.Rsp = in.frame
		r.Rax = 0
		r.Eflags &^= 0x400 // DF is clear at a function's entry
		dst := [...]*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.Rcx, &r.R8, &r.R9}
		for i, a := range args {
			if i < len(dst) {
				*dst[i] = a
			}
		}
		result, err = in.run(ctx, &r, in.callDone)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("call of %v in process %d: %w", fn, p.pid, err)
	}
	return result, nil
}

// injection is a call under way in a stopped thread.
type injection struct {
	t        *Thread
	saved    unix.PtraceRegs // what the thread goes on with
	start    unix.PtraceRegs // saved, without a system call to restart
	mask     uint64
	blocks   uint64         // what the call blocks
	pass     syscall.Signal // goes to the kernel with the next step; 0 is none
	xstate   []byte
	room     *room
	image    []byte
	frame    uint64
	restoreX bool
	suspend  bool   // seccomp is suspended, until restore
	entry    bool   // the last stop was that of a system call's entry
	first    uint64 // address of the first injected instruction
	raised   bool   // a fault from before was dropped
	begun    uint64 // where the thread goes on by itself
}

// prepareInjection saves the context of t, in the tracer and in the process.
func (t *Thread) prepareInjection(ret uint64, stack bool) (in *injection, err error) {
	if t.status>>16 == 0 && t.inDelivery() && !t.busy {
		// It can only be done where the kernel restarts what it makes restart,
		// and the thread may be left elsewhere.
		t.hideSignal(t.status.StopSignal())
	}
	regs, err := t.Regs()
	if err != nil {
		return nil, err
	}
	in = &injection{t: t, saved: *regs}
	in.start = in.saved
	in.start.Orig_rax = negative(-1)
	in.start.Eflags &^= trapFlag // of a program that steps itself
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
	// The signal that stopped the thread can't be asked for any more after.
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
		begun.Rip = t.before(begun.Rip) // where it goes on should the tracer be killed
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

// run lets the thread run from r until done says so, and puts its context
// back. The order of the steps keeps the thread safe wherever the tracer dies:
// signals are blocked only while the registers lead to rt_sigreturn, which
// sets the mask; and the thread runs to system call stops, since single steps
// would leave the trap flag behind.
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

// next resumes the thread and waits for its next stop. A thread that ends, or
// does not stop before the deadline and the interrupt that follows it, is an
// error.
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

// callDone follows a called function through its own system calls to the
// rt_sigreturn behind its return, which it cancels.
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

// cancel keeps the thread, stopped at the entry of a system call with the
// registers r, from making it, and leads it to the call's exit.
func (in *injection) cancel(r *unix.PtraceRegs) error {
	r.Orig_rax = negative(-1)
	if e := setRegs(in.t.tid, r); e != 0 {
		return in.t.failed("setregs", e)
	}
	_, err := in.next(time.Now().Add(injectPatience))
	return err
}

// keepSignal puts a signal off that isn't blocked; one that the injected code
// raised ends the injection.
func (in *injection) keepSignal(sig syscall.Signal) error {
	var si Siginfo
	if e := getSiginfo(in.t.tid, &si); e != 0 {
		return in.t.failed("getsiginfo", e)
	}
	if sig == syscall.SIGSYS && si.Code() > 0 {
		return ErrSeccomp // SYS_SECCOMP, or SYS_USER_DISPATCH of prctl
	}
	if sig == syscall.SIGTRAP && (si.Code() == trapHwbkpt || si.Code() == trapBrkpt && in.t.watches != nil) {
		return nil // what is called has accessed memory that is watched
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

// restore gives the thread its context back and leaves it stopped. Where the
// kernel still has to restart a system call, or a job control stop is to go
// on, the thread is first led to a stop from which it does. stopped is whether
// job control has it stopped there.
func (in *injection) restore(wasStopped bool) (stopped bool, err error) {
	t := in.t
	if in.entry {
		// A call was given up at its entry: the kernel would make the one that
		// the thread's own registers tell of an earlier call.
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

// putBack ends what the call needs besides the thread's own context.
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
	return nil
}

// toInterruptStop lets the thread go on to a PTRACE_EVENT_STOP without
// executing an instruction of the program, and reports whether job control has
// it stopped there: it may have been let go on meanwhile.
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

// withThread calls fn with a stopped thread that can make a call.
func (p *Process) withThread(ctx context.Context, t *Thread, fn func(*Thread) error) error {
	return p.tr.Do(func() error { return p.onThread(ctx, t, fn) })
}

func (p *Process) onThread(ctx context.Context, t *Thread, fn func(*Thread) error) error {
	switch {
	case p.gone.Load():
		return ErrGone
	case p.parted:
		return ErrParted
	}
	if err := p.payDebts(); err != nil {
		return err
	}
	if t != nil {
		if t.gone {
			return ErrGone
		}
		if !t.stopped {
			return ErrRunning
		}
		if t.exitSeen {
			return ErrNoThread
		}
		switch t.status >> 16 {
		case 0, unix.PTRACE_EVENT_STOP:
		default:
			// In the middle of a system call, whose return would still
			// overwrite rax.
			if !t.passEvent() {
				return ErrNoThread
			}
		}
		return p.inStop(t, fn)
	}
	return p.chooseThread(ctx, fn)
}
