package engine

import (
	"errors"
	"fmt"

	"kprobe/probe/tracee"
)

// ErrClosed is returned by the methods of a session that was closed.
var ErrClosed = errors.New("the session is closed")

// ignoreLate is tracee.IgnoreLate, with a word about what it ignores.
func (tg *Target) ignoreLate(err error) error {
	if err != nil && tracee.IgnoreLate(err) == nil {
		tg.Engine.Logf("%v", err)
		return nil
	}
	return err
}

// ExecutedError says that a process executed another program while probes were
// being put into it: they went with the memory that they were in, and may be put
// into the new program.
type ExecutedError struct {
	PID int
	Err error // what this made fail, a consequence: it isn't unwrapped
}

func (e *ExecutedError) Error() string {
	return fmt.Sprintf("process %d executed a program while its probes were being put in: try again", e.PID)
}

// InvalidProbeError says which field of a probe can't be as it is.
type InvalidProbeError struct {
	Field  string
	Reason string
}

func (e *InvalidProbeError) Error() string { return e.Field + ": " + e.Reason }
