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

// synchronous are the signals that a thread's own instructions raise. They stay unblocked
// during an injection: if they were blocked, they would kill the program.
const synchronous = 1<<(syscall.SIGSEGV-1) | 1<<(syscall.SIGBUS-1) | 1<<(syscall.SIGILL-1) |
	1<<(syscall.SIGFPE-1) | 1<<(syscall.SIGTRAP-1) | 1<<(syscall.SIGSYS-1)

// Syscall makes a thread of the process execute a system call and returns its result. An error
// number is returned as a syscall.Errno. t must be stopped. If t is nil, Syscall chooses a
// thread and stops it for the time of the call. Do not inject calls that change the restart
// block (sleeps and waits with a timeout) or that create threads.
//
// If the tracer is killed at any moment of the call, the thread continues with its own context;
// only a wait with a timeout that it was in begins anew. A signal that arrives meanwhile is
// delivered afterwards. So is a signal that t had stopped with: it comes again.
//
// Errors are ErrNoThread, ErrNoRoom, ErrSeccomp, ErrDispatched, ErrTimeout and ErrGone. After each
// the thread is as it was, with one exception: *LateError, an ErrTimeout, says that a thread waits
// in the call and can't be stopped. Then the call may still take effect, and no other call is
// injected into the process before it has ended (debt.go).
func (p *Process) Syscall(ctx context.Context, t *Thread, nr uintptr, args ...uintptr) (uintptr, error) {
	return p.syscallWith(ctx, t, nr, func(room *room) []uintptr { return args })
}

// SyscallString is Syscall with a first argument that points to s, which has at most 255 bytes,
// none of them 0. The memory is the program's again afterwards.
func (p *Process) SyscallString(ctx context.Context, t *Thread, nr uintptr, s string, args ...uintptr) (uintptr, error) {
	b := append([]byte(s), 0)
	if len(b) > bufferSize {
		return 0, fmt.Errorf("string of %d bytes: %w", len(s), syscall.EINVAL)
	}
	return p.SyscallBuilt(ctx, t, nr, func(at uint64) ([]byte, []uintptr) {
		return b, append([]uintptr{uintptr(at)}, args...)
	})
}

// SyscallBuilt is Syscall with memory for its arguments, at most 256 bytes. build gets the
// memory's address and returns its contents and the arguments. The memory is no longer the
// call's once it has returned.
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
		if frozen := Frozen(p.pid); frozen != nil && (errors.Is(err, ErrTimeout) || errors.Is(err, ErrNoThread)) {
			err = fmt.Errorf("%w; %w", err, frozen)
		}
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

// Call makes a thread of the process call the function at fn with up to six integer arguments,
// on a separate stack below the saved context, and returns its rax. It is meant for functions
// that only compute, such as the resolvers of IFUNC symbols. For t, signals and errors see
// Syscall. A fault in the function is an error, and the program doesn't see it.
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
