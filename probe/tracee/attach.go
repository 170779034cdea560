//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Attach seizes all threads of a running process. It stops none of them. What
// the process creates from then on is traced too, and its events wait for Run.
//
// The errors are ErrGone (*NoProcessError where there was none), ErrZombie, ErrSelf, ErrKernelThread, Err32Bit,
// ErrAttached, *TracedError and *PermissionError; after an error nothing stays
// attached. It may be called from any goroutine.
func (t *Tracer) Attach(ctx context.Context, pid int) (*Process, error) {
	var p *Process
	err := t.Do(func() error {
		var err error
		p, err = t.attach(ctx, pid)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attach to process %d: %w", pid, err)
	}
	return p, nil
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

// How long a tracer that is about to end is waited for, and how often it is looked
// for.
const (
	tracerEnds = 10 * time.Second
	tracerLook = 2 * time.Millisecond
)

// mayAttachSoon is mayAttach once a tracer that was killed is gone: the kernel lets
// its tracees go when it ends, not when it is killed, and a busy machine takes a
// while over it.
func (t *Tracer) mayAttachSoon(ctx context.Context, pid int) error {
	for until := time.Now().Add(tracerEnds); ; time.Sleep(tracerLook) {
		err := t.mayAttach(pid)
		var traced *TracedError
		if !errors.As(err, &traced) || ctx.Err() != nil || !time.Now().Before(until) || !ending(traced.thread) {
			return err
		}
	}
}

// ending reports whether a thread is gone, ends, or was killed.
func ending(tid int) bool {
	status, err := os.ReadFile(procPath(tid, "status"))
	if err != nil {
		return true
	}
	if state := statusField(status, "State"); strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X") {
		return true
	}
	for _, name := range []string{"SigPnd", "ShdPnd"} {
		if set, err := strconv.ParseUint(statusField(status, name), 16, 64); err == nil && set&(1<<(unix.SIGKILL-1)) != 0 {
			return true
		}
	}
	const pfExiting = 0x4 // PF_EXITING of include/linux/sched.h
	fields, err := statFields(procPath(tid, "stat"))
	if err != nil || len(fields) < 7 {
		return true
	}
	flags, _ := strconv.ParseUint(fields[6], 10, 64)
	return flags&pfExiting != 0
}

// mayAttach finds what would make tracing fail, before it is tried.
func (t *Tracer) mayAttach(pid int) error {
	if pid == t.pid {
		return ErrSelf
	}
	status, err := os.ReadFile(procPath(pid, "status"))
	if err != nil || pid <= 0 {
		return &NoProcessError{PID: pid}
	}
	if tgid, _ := strconv.Atoi(statusField(status, "Tgid")); tgid != pid {
		return &NoProcessError{PID: pid, Of: tgid}
	}
	if by, _ := strconv.Atoi(statusField(status, "TracerPid")); by != 0 {
		return tracedBy(pid, by)
	}
	fields, err := statFields(procPath(pid, "stat"))
	if err != nil || len(fields) < 7 {
		return ErrGone
	}
	const pfKthread = 0x200000 // PF_KTHREAD of include/linux/sched.h
	if flags, _ := strconv.ParseUint(fields[6], 10, 64); flags&pfKthread != 0 {
		return ErrKernelThread
	}
	if threads, _ := strconv.Atoi(statusField(status, "Threads")); fields[0] == "Z" && threads <= 1 {
		return ErrZombie
	}
	return checkClass(pid)
}

// checkClass refuses programs that aren't 64-bit x86. An executable that can't
// be read is left to the kernel to judge.
func checkClass(pid int) error {
	f, err := os.Open(procPath(pid, "exe"))
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

// tracedBy is the error for a process with another tracer. by is the thread that
// traces it, as TracerPid is; its process is what the user knows.
func tracedBy(pid, by int) error {
	thread := by
	if status, err := os.ReadFile(procPath(by, "status")); err == nil {
		if tgid, _ := strconv.Atoi(statusField(status, "Tgid")); tgid > 0 {
			by = tgid
		}
	}
	comm, _ := os.ReadFile(procPath(by, "comm"))
	return &TracedError{PID: pid, By: by, Comm: strings.TrimSpace(string(comm)), thread: thread}
}

// seizeAll seizes threads until two passes over the list see the same ones.
// StopAll looks again, since a thread may be in the middle of creating another
// now that doesn't show yet.
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

// seizeThread seizes a thread unless it is known, ended, or seized by its
// creation already.
func (p *Process) seizeThread(tid int) error {
	if p.threads[tid] != nil {
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

// refused finds out why the kernel said EPERM.
func (p *Process) refused(tid int) error {
	status, err := os.ReadFile(taskPath(p.pid, tid, "status"))
	if err != nil {
		return nil // ended meanwhile
	}
	by, _ := strconv.Atoi(statusField(status, "TracerPid"))
	switch state := statusField(status, "State"); {
	case by == p.tr.pid || by == p.tr.tid:
		p.tr.adopt(p.newThread(tid))
		return nil
	case by != 0:
		return tracedBy(p.pid, by)
	case strings.HasPrefix(state, "Z"), strings.HasPrefix(state, "X"):
		return nil
	}
	return p.permission(status)
}

func (p *Process) permission(status []byte) error {
	scope, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	uid, _, _ := strings.Cut(statusField(status, "Uid"), "\t")
	e := &PermissionError{PID: p.pid}
	e.Reason, e.Remedy = whyRefused(os.Geteuid(), uid, strings.TrimSpace(string(scope)))
	return e
}

// whyRefused says which of the kernel's rules refused a tracer of user euid to
// trace a process of user owner ("" is unknown), and what helps (ptrace(2),
// "Ptrace access mode checking", and Documentation/admin-guide/LSM/Yama.rst).
func whyRefused(euid int, owner, scope string) (reason, remedy string) {
	switch {
	case scope == "3":
		return "kernel.yama.ptrace_scope is 3: nobody may trace", "it can only be changed by a reboot"
	case euid == 0:
		return "the system's policy forbids it even to root (a container without CAP_SYS_PTRACE, or a security module)",
			"run outside the container, or give it the SYS_PTRACE capability"
	case owner != "" && owner != strconv.Itoa(euid):
		return "it belongs to user " + owner, "run as that user or as root"
	case scope == "2":
		return "kernel.yama.ptrace_scope is 2: only root may trace", "run as root"
	case scope == "1":
		return "kernel.yama.ptrace_scope is 1: only a parent may trace",
			"run as root, start the program with kprobe, or set kernel.yama.ptrace_scope to 0"
	}
	return "the program is set-user-ID, has capabilities, or asked not to be traced (PR_SET_DUMPABLE)", "run as root"
}
