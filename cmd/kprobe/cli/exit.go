package cli

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Exit statuses of kprobe itself. With -- CMD the command's own status comes
// back when the trace went well.
const (
	ExitOK      = 0
	ExitFailure = 1 // something could not be done
	ExitMisuse  = 2 // the command line makes no sense
)

// failure is an error of the work itself. Any other error of a command is misuse of the command
// line.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(err error) error {
	var status statusError
	var wrong *misuseError
	if err == nil || errors.As(err, &status) || errors.As(err, &wrong) {
		return err
	}
	return &failure{err}
}

// misuseError is an error of the command line, which fail does not turn into one of the work,
// wherever it was found.
type misuseError struct{ err error }

func (e *misuseError) Error() string { return e.err.Error() }
func (e *misuseError) Unwrap() error { return e.err }

func misuse(format string, args ...any) error { return &misuseError{fmt.Errorf(format, args...)} }

// several are errors that each get a message of their own.
type several []error

func (s several) Error() string {
	words := make([]string, len(s))
	for i, err := range s {
		words[i] = err.Error()
	}
	return strings.Join(words, "; ")
}

// Unwrap gives the errors.
func (s several) Unwrap() []error { return s }

// both joins two errors; either may be nil.
func both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil, a.Error() == b.Error(): // an output that fails fails again when it is ended
		return a
	}
	return several{a, b}
}

// statusError ends kprobe with a status and without a message.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// errLeftBehind is wrapped by the error of a trace that could not remove its probes: the
// supervisor must try.
var errLeftBehind = errors.New("probes are left in the process")

// hasRun reports whether a trace that ended with err has come to its end, so that its counters are to be shown: they are
// whole, too, if its probes could not be removed.
func hasRun(err error) bool { return err == nil || errors.Is(err, errLeftBehind) }

// commandStatus gives kprobe's status for the way a traced command ended: its
// own status, or 128 plus the number of the signal, as shells do.
func commandStatus(ws syscall.WaitStatus) error {
	status := ws.ExitStatus()
	if ws.Signaled() {
		status = 128 + int(ws.Signal())
	}
	if status == 0 {
		return nil
	}
	return statusError(status)
}

// exitStatus maps what a command returned.
func exitStatus(err error) int {
	var status statusError
	var failed *failure
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &failed):
		return ExitFailure
	}
	return ExitMisuse
}
