package engine

import (
	"errors"
	"fmt"

	"kprobe/probe/tracee"
)

// ErrClosed is returned by the methods of a session that was closed.
var ErrClosed = errors.New("the session is closed")

// ignoreLate is tracee.IgnoreLate, but logs an error that it ignores.
func (tg *Target) ignoreLate(err error) error {
	if err != nil && tracee.IgnoreLate(err) == nil {
		tg.Engine.Logf("%v", err)
		return nil
	}
	return err
}

// ExecutedError says that a process executed another program while probes were being armed in it.
// The probes are gone with the old program's memory. They may be armed in the new program.
type ExecutedError struct {
	PID int
	Err error // the error that this caused; it isn't unwrapped
}

func (e *ExecutedError) Error() string {
	return fmt.Sprintf("process %d executed a program while its probes were being put in: try again", e.PID)
}

// InvalidProbeError says which field of a registered probe is invalid, and why.
type InvalidProbeError struct {
	Field  string
	Reason string
}

func (e *InvalidProbeError) Error() string { return e.Field + ": " + e.Reason }
