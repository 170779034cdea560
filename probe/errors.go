package probe

import (
	"errors"
	"fmt"

	"kprobe/probe/area"
	"kprobe/probe/assess"
	"kprobe/probe/engine"
	"kprobe/probe/memory"
	"kprobe/probe/survey"
	"kprobe/probe/tracee"
)

// DefError says which definition could not be armed. Its cause is an error of package symbols,
// package fetch or this package.
type DefError = assess.DefError

// ErrClosed is returned by the methods of a closed session.
var ErrClosed = engine.ErrClosed

// ErrNoEvent says that the session doesn't have the event, or no longer has it.
var ErrNoEvent = engine.ErrNoEvent

// ErrNothingLeft says that no probe of a session can be left alone (Session.Detach).
var ErrNothingLeft = engine.ErrNothingLeft

type (
	// ExecutedError says that a process executed another program while probes were being
	// put into it. The probes are gone with the old memory.
	ExecutedError = engine.ExecutedError
	// InvalidProbeError says which field of a probe is invalid, and why.
	InvalidProbeError = engine.InvalidProbeError
	// InjectionError says why calls can't be changed as asked.
	InjectionError = engine.InjectionError
	// LeaveError says why definitions can't be left alone.
	LeaveError = engine.LeaveError
)

// RefusedError says that an address can't be probed, and by which rule.
type RefusedError = survey.RefusedError

// LimitError says that a resource limit of the process prevents something.
type LimitError = memory.LimitError

// BoundaryError says that an address lies inside an instruction.
type BoundaryError = survey.BoundaryError

// Why a process can't be traced.
type (
	// NoProcessError says that there is no such process.
	NoProcessError = tracee.NoProcessError
	// TracedError says that another tracer has the process.
	TracedError = tracee.TracedError
	// BusyError says that another command has been changing the detached probes of the process for too long.
	BusyError = area.BusyError
	// PermissionError says why the system refused to let kprobe trace the process, and what
	// would help. It is ErrPermission.
	PermissionError = tracee.PermissionError
	// FrozenError says that a cgroup has frozen the process, and which.
	FrozenError = tracee.FrozenError
)

var (
	// ErrSeccomp says that the process's seccomp rules forbid a system call that kprobe
	// needs.
	ErrSeccomp = tracee.ErrSeccomp
	// ErrNoDebugRegisters says that the kernel, or the machine under it, lets nobody watch memory.
	ErrNoDebugRegisters = tracee.ErrNoDebugRegisters
	// ErrGone says that a process, or its thread, has ended.
	ErrGone = tracee.ErrGone
	// ErrPermission says that the system refused to let kprobe trace a process.
	ErrPermission = tracee.ErrPermission
)

// SemaphoreError says that detached events are switched, but the semaphores of statically defined probes are not.
type SemaphoreError struct {
	On  bool // the events are on
	Err error
}

func (e *SemaphoreError) Error() string {
	if e.On {
		return fmt.Sprintf("the events are enabled, but the program may skip their statically defined probes, as semaphores could not be raised: %v: enable them again later", e.Err)
	}
	return fmt.Sprintf("the events are disabled, but the program still computes the arguments of their statically defined probes, as semaphores could not be lowered: %v: disable them again later", e.Err)
}

// Unwrap returns the cause.
func (e *SemaphoreError) Unwrap() error { return e.Err }

// ErrInHandler is returned by methods that a handler must not call, because it runs while its
// thread is stopped in the middle of a hit.
var ErrInHandler = errors.New("a handler can't change the probes of a session")

// ErrRegistered says that a probe is registered already.
var ErrRegistered = errors.New("the probe is registered already")

// ErrNotRegistered says that a probe is not registered with the session.
var ErrNotRegistered = errors.New("the probe is not registered with this session")

// RegisterError says which probe of a call could not be registered, unregistered or switched.
type RegisterError struct {
	Index int // among the call's probes
	Probe Probe
	Err   error
}

func (e *RegisterError) Error() string {
	return fmt.Sprintf("probe %d (%s): %v", e.Index, probeName(e.Probe), e.Err)
}

// Unwrap returns the cause.
func (e *RegisterError) Unwrap() error { return e.Err }

// HandlerError is a handler that panicked. The thread that hit the probe continues as if the
// handler had changed nothing, the probe is switched off, and Run returns this error.
type HandlerError struct {
	Probe   Probe
	Handler string // the field's name: PreHandler, Entry …
	Value   any    // of the panic
	Stack   []byte // of the handler's goroutine, as debug.Stack gives it
}

func (e *HandlerError) Error() string {
	return fmt.Sprintf("the %s of %s panicked: %v", e.Handler, probeName(e.Probe), e.Value)
}

// Unwrap returns the panic's value if it is an error.
func (e *HandlerError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

func probeName(p Probe) string {
	if p == nil {
		return "nil"
	}
	return p.kprobe().String()
}

// ErrInjectControls says that a session that changes calls also has a limit of hits, an end or
// triggers. Those decide which hits are recorded, and have no effect on changed calls.
// Injection has a limit of its own.
var ErrInjectControls = errors.New("a session that changes calls has no limit of hits, no end and no triggers")
