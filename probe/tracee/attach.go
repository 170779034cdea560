//go:build linux && amd64

package tracee

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/probe/tracee/access"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
)

// Attach seizes all threads of a running process, and stops none of them. Threads and processes
// that the process creates from then on are traced too. Their events wait for Run. Any
// goroutine may call it.
//
// Errors are *NoProcessError, ErrGone, ErrZombie, ErrSelf, ErrKernelThread, Err32Bit,
// ErrAttached, *TracedError and *PermissionError. After an error nothing stays attached.
func (t *Tracer) Attach(ctx context.Context, pid int) (*Process, error) {
	var p *Process
	err := t.Do(func() error {
		var err error
		p, err = t.attach(ctx, pid)
		return err
	})
	if err != nil {
		return nil, AttachError(pid, err)
	}
	return p, nil
}

// AttachError says which process couldn't be attached to, unless err says so itself.
func AttachError(pid int, err error) error {
	switch err.(type) {
	case *TracedError, *PermissionError:
		return fmt.Errorf("attach: %w", err)
	}
	return fmt.Errorf("attach to process %d: %w", pid, err)
}

func (t *Tracer) attach(ctx context.Context, pid int) (*Process, error) {
	if t.procs[pid] != nil {
		return nil, ErrAttached
	}
	if err := t.mayAttachSoon(ctx, pid); err != nil {
		return nil, err
	}
	p := t.newProcess(pid)
	err := p.seizeAll(ctx)
	if err == nil {
		err = p.seizeSharers(ctx)
	}
	if err != nil {
		for _, q := range p.Sharers() {
			err = errors.Join(err, q.Detach(context.WithoutCancel(ctx), nil))
		}
		if len(p.threads) > 0 {
			// Without the caller's context: it may be what failed.
			err = errors.Join(err, p.Detach(context.WithoutCancel(ctx), nil))
		}
		t.drop(p)
		return nil, err
	}
	return p, nil
}

// How long to wait for another tracer that is about to end, and how often to check.
const (
	tracerEnds = 10 * time.Second
	tracerLook = 2 * time.Millisecond
)

// mayAttachSoon is mayAttach, but waits until a tracer that was killed is gone. The kernel
// releases its tracees when it has ended, not when it is killed, and on a busy machine that
// takes a while.
func (t *Tracer) mayAttachSoon(ctx context.Context, pid int) error {
	for until := time.Now().Add(tracerEnds); ; time.Sleep(tracerLook) {
		err := t.mayAttach(pid)
		var traced *TracedError
		if !errors.As(err, &traced) || ctx.Err() != nil || !time.Now().Before(until) || !ending(traced.thread) {
			return err
		}
	}
}

// Ending reports whether a process is gone, is ending, or was killed.
func Ending(pid int) bool { return ending(pid) }

// ending reports whether a thread is gone, is ending, or was killed.
func ending(tid int) bool {
	st, err := procfs.Process(tid).Status()
	if err != nil || hasEnded(st.State()) {
		return true
	}
	for _, name := range []string{"SigPnd", "ShdPnd"} {
		if set, _ := st.Set(name); set&(1<<(unix.SIGKILL-1)) != 0 {
			return true
		}
	}
	stat, _ := procfs.Process(tid).Stat()
	flags, ok := stat.Uint(procfs.FieldFlags)
	return !ok || flags&procfs.FlagExiting != 0
}

// mayAttach finds reasons why tracing would fail, before it is tried.
func (t *Tracer) mayAttach(pid int) error {
	if pid == t.pid {
		return ErrSelf
	}
	st, err := procfs.Process(pid).Status()
	if procfs.Short(err) {
		return goneUnless(err)
	}
	if err != nil || pid <= 0 {
		return &NoProcessError{PID: pid}
	}
	if tgid := st.Int("Tgid"); tgid != pid {
		return &NoProcessError{PID: pid, Of: tgid}
	}
	if by := st.Int("TracerPid"); by != 0 {
		return tracedBy(pid, by)
	}
	stat, err := procfs.Process(pid).Stat()
	flags, ok := stat.Uint(procfs.FieldFlags)
	if !ok {
		return goneUnless(err)
	}
	if flags&procfs.FlagKernelThread != 0 {
		return ErrKernelThread
	}
	if stat.State() == 'Z' && st.Int("Threads") <= 1 {
		return ErrZombie
	}
	return checkClass(pid)
}

// checkClass refuses programs that aren't 64-bit x86. If an executable can't be read, the
// kernel is left to judge.
func checkClass(pid int) error {
	f, _, err := untrusted.Open(procfs.Process(pid).Path("exe"))
	if err != nil {
		return nil
	}
	defer f.Close()
	var h [20]byte
	if _, err := f.ReadAt(h[:], 0); err != nil || string(h[:4]) != "\x7fELF" {
		return nil
	}
	const class64, machineX8664 = 2, 62
	if h[4] != class64 || h[18] != machineX8664 {
		return Err32Bit
	}
	return nil
}

// TracedBy returns the error for a process in which another process has probes, traced or not.
func TracedBy(pid, by int) error { return tracedBy(pid, by) }

// tracedBy returns the error for a process with another tracer. by is the thread that traces
// it, as TracerPid is. The user knows the process of that thread.
func tracedBy(pid, by int) error {
	thread := by
	if st, err := procfs.Process(by).Status(); err == nil {
		by = cmp.Or(st.Int("Tgid"), by)
	}
	comm, _ := procfs.Process(by).Comm()
	return &TracedError{PID: pid, By: by, Comm: strings.TrimSpace(comm), thread: thread}
}

// seizeAll seizes threads until two passes over the list see the same ones. StopAll looks
// again: a thread may be creating another one right now, which isn't listed yet.
func (p *Process) seizeAll(ctx context.Context) error {
	var last []int
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		tids, err := tasks(p.pid)
		if err != nil {
			return err
		}
		slices.Sort(tids)
		for _, tid := range tids {
			if err := p.seizeThread(tid); err != nil {
				return err
			}
		}
		if slices.Equal(tids, last) {
			break
		}
		last = tids
	}
	if len(p.threads) == 0 {
		return ErrGone
	}
	return nil
}

// seizeThread seizes a thread, unless it is already known, has ended, was seized by its
// creation, or is the kernel's.
func (p *Process) seizeThread(tid int) error {
	if p.threads[tid] != nil || p.isWorker(tid) {
		return nil
	}
	switch e := seize(tid, options); e {
	case 0:
		p.newThread(tid).announced = true
	case syscall.ESRCH:
	case syscall.EPERM:
		return p.refused(tid)
	default:
		return &PtraceError{"seize", tid, e}
	}
	return nil
}

// refused finds out why the kernel returned EPERM.
func (p *Process) refused(tid int) error {
	st, err := procfs.Thread(p.pid, tid).Status()
	if err != nil {
		return nil // ended meanwhile
	}
	switch by := st.Int("TracerPid"); {
	case by == p.tr.pid || by == p.tr.tid:
		p.tr.adopt(p.newThread(tid))
		return nil
	case by != 0:
		return tracedBy(p.pid, by)
	case hasEnded(st.State()):
		return nil
	}
	return p.permission()
}

// permission returns the error for a process that the kernel doesn't allow to trace.
func (p *Process) permission() error {
	c := access.Look("/proc", p.tr.pid, p.pid)
	c.Denied = true
	r := c.Why()
	return &PermissionError{PID: p.pid, Reason: r.Reason, Remedy: r.Remedy}
}
