//go:build linux && amd64

package tracee

import (
	"errors"
	"fmt"
	"syscall"

	"kprobe/internal/procfs"
)

var (
	// ErrGone says that the process or thread has ended.
	ErrGone = errors.New("process is gone")
	// ErrPermission says that the system refused to let kprobe trace the process.
	ErrPermission = errors.New("not permitted to trace")
	// ErrClosed says that the Tracer was closed.
	ErrClosed = errors.New("tracer is closed")
	// ErrKernelThread says that a thread is the kernel's, and has no user memory to trace.
	ErrKernelThread = errors.New("a kernel thread can't be traced")
	// ErrSelf says that a process asked to trace itself.
	ErrSelf = errors.New("a process can't trace itself")
	// ErrZombie says that the process has ended and waits for its parent.
	ErrZombie = errors.New("process has ended (zombie)")
	// Err32Bit says that the process does not run x86-64 code.
	Err32Bit = errors.New("32-bit processes are not supported")
	// ErrAttached says that this Tracer already traces the process.
	ErrAttached = errors.New("already traced by this tracer")
	// ErrSeccomp says that the program's seccomp rules refuse a system call that must be
	// made in it.
	ErrSeccomp = errors.New("refused by the program's seccomp mode")
	// ErrDispatched says that the program takes a thread's system calls itself
	// (PR_SET_SYSCALL_USER_DISPATCH), also one that must be made there.
	ErrDispatched = errors.New("the program catches it (PR_SET_SYSCALL_USER_DISPATCH)")
	// ErrNoRoom says that no unused bytes were found for code or a saved context.
	ErrNoRoom = errors.New("no unused bytes in the process for an injected call")
	// ErrNoThread says that no thread of the process could be used for an injected call.
	ErrNoThread = errors.New("no thread can make a system call for kprobe now")
	// ErrTimeout says that a thread did not stop, or an injected call did not return, in
	// time.
	ErrTimeout = errors.New("timed out")
	// ErrRunning says that an operation needs a stopped thread.
	ErrRunning = errors.New("thread is not stopped")
)

// NoProcessError is ErrGone for a process that was not there when it should be attached to.
type NoProcessError struct {
	PID int
	// Of is the process of which PID is a thread, but not the first. It is 0 if nothing has
	// that number.
	Of int
}

// Error says what the number is, if it is anything.
func (e *NoProcessError) Error() string {
	if e.Of != 0 {
		return fmt.Sprintf("%d is a thread of process %d", e.PID, e.Of)
	}
	return "no such process"
}

// Unwrap gives ErrGone.
func (e *NoProcessError) Unwrap() error { return ErrGone }

// PtraceError is a ptrace call that failed.
type PtraceError struct {
	Op    string // the request, as in PTRACE_…, lower-case
	TID   int
	Errno syscall.Errno
}

// Error gives the request, the thread and the reason.
func (e *PtraceError) Error() string {
	return fmt.Sprintf("ptrace %s of thread %d: %v", e.Op, e.TID, e.Errno)
}

// Unwrap gives the errno, or ErrGone for ESRCH.
func (e *PtraceError) Unwrap() error {
	if e.Errno == syscall.ESRCH {
		return ErrGone
	}
	return e.Errno
}

// TracedError says that another process traces the target already.
type TracedError struct {
	PID int // the target
	By  int // its tracer
	// Comm is the tracer's name; "" is unknown.
	Comm   string
	thread int // of the tracer
}

// Error names the tracer.
func (e *TracedError) Error() string {
	if e.Comm != "" {
		return fmt.Sprintf("process %d is traced already by process %d (%s)", e.PID, e.By, e.Comm)
	}
	return fmt.Sprintf("process %d is traced already by process %d", e.PID, e.By)
}

// PermissionError is ErrPermission with the reason.
type PermissionError struct {
	PID    int
	Reason string
	Remedy string
}

// Error gives the reason and the remedy.
func (e *PermissionError) Error() string {
	return fmt.Sprintf("not permitted to trace process %d: %s; %s", e.PID, e.Reason, e.Remedy)
}

// Unwrap gives ErrPermission.
func (e *PermissionError) Unwrap() error { return ErrPermission }

// FrozenError says that a process is frozen by a cgroup: its threads execute nothing, not even for a tracer.
type FrozenError struct {
	PID    int
	Cgroup string // its folder
}

// Error names the cgroup.
func (e *FrozenError) Error() string {
	return fmt.Sprintf("process %d is frozen by the cgroup %s: thaw it first", e.PID, e.Cgroup)
}

// Frozen is a *FrozenError if the process is frozen, as far as that can be known.
func Frozen(pid int) error {
	if dir := procfs.Frozen(pid); dir != "" {
		return &FrozenError{PID: pid, Cgroup: dir}
	}
	return nil
}

// NotStoppedError lists the threads that did not stop in time. They wait in the kernel (a vfork
// parent, a dead network file system, a frozen group), and execute no program code until that
// wait ends; then they stop.
type NotStoppedError struct {
	PID  int
	TIDs []int
}

// Error counts the threads and names the first.
func (e *NotStoppedError) Error() string {
	return fmt.Sprintf("%d threads of process %d did not stop, such as %d", len(e.TIDs), e.PID, e.TIDs[0])
}

// Unwrap gives ErrTimeout.
func (e *NotStoppedError) Unwrap() error { return ErrTimeout }
