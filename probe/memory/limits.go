package memory

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// LimitError says that a limit of a process's resources (getrlimit(2)) may be in the way of
// memory that kprobe needs in it.
type LimitError struct {
	PID    int
	Name   string // RLIMIT_AS, RLIMIT_DATA or RLIMIT_MEMLOCK
	Option string // of prlimit(1), which changes it
	Bytes  uint64 // the limit
	Err    error  // of the system call
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %s allows process %d %d bytes", e.Err, e.Name, e.PID, e.Bytes)
}

// Unwrap gives the error of the system call.
func (e *LimitError) Unwrap() error { return e.Err }

// The limits that count what is mapped, what may be written to, and what is locked: that is all that a process maps after
// mlockall(MCL_FUTURE).
var (
	limitMapped   = LimitError{Name: "RLIMIT_AS", Option: "as"}
	limitWritable = LimitError{Name: "RLIMIT_DATA", Option: "data"}
	limitLocked   = LimitError{Name: "RLIMIT_MEMLOCK", Option: "memlock"}
)

// limited makes a *LimitError of an error that a process got who has such a limit, where
// the kernel had no memory for it, or didn't lock more.
func limited(pid int, err error, which LimitError) error {
	resource := unix.RLIMIT_AS
	switch {
	case errors.Is(err, unix.EAGAIN):
		which, resource = limitLocked, unix.RLIMIT_MEMLOCK
	case !errors.Is(err, unix.ENOMEM):
		return err
	case which.Name == limitWritable.Name:
		resource = unix.RLIMIT_DATA
	}
	var r unix.Rlimit
	if unix.Prlimit(pid, resource, nil, &r) != nil || r.Cur == unix.RLIM_INFINITY {
		return err
	}
	which.PID, which.Bytes, which.Err = pid, r.Cur, err
	return &which
}
