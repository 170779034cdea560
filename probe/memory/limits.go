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
	Name   string // RLIMIT_AS or RLIMIT_DATA
	Option string // of prlimit(1), which changes it
	Bytes  uint64 // the limit
	Err    error  // of the system call
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %s allows process %d %d bytes", e.Err, e.Name, e.PID, e.Bytes)
}

// Unwrap gives the error of the system call.
func (e *LimitError) Unwrap() error { return e.Err }

// The limits that count what is mapped, and what may be written to.
var (
	limitMapped   = LimitError{Name: "RLIMIT_AS", Option: "as"}
	limitWritable = LimitError{Name: "RLIMIT_DATA", Option: "data"}
)

// limited makes a *LimitError of an error that a process got who has such a limit, where
// the kernel had no memory for it.
func limited(pid int, err error, which LimitError) error {
	resource := unix.RLIMIT_AS
	if which.Name == limitWritable.Name {
		resource = unix.RLIMIT_DATA
	}
	var r unix.Rlimit
	if !errors.Is(err, unix.ENOMEM) || unix.Prlimit(pid, resource, nil, &r) != nil || r.Cur == unix.RLIM_INFINITY {
		return err
	}
	which.PID, which.Bytes, which.Err = pid, r.Cur, err
	return &which
}
