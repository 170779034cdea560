package fetch

import "errors"

// ErrNoDebugInfo is what an Env's Variable and Parameters wrap where the
// probed file has no debug information.
var ErrNoDebugInfo = errors.New("no debug information")

// ErrNoValue is wrapped by what an Env says of a variable that exists but has no
// value that could be fetched at the place: the compiler optimized it out there.
var ErrNoValue = errors.New("optimized out")

// ErrNoResult is wrapped by what an Env says of the result of a function that
// returns nothing.
var ErrNoResult = errors.New("the function returns nothing")

// ErrCorrupt is wrapped by Decode's error for data that no Eval wrote.
var ErrCorrupt = errors.New("corrupt argument data")

// FieldError is wrapped by what an Env says of a member that it can't give: the
// caret goes under the member, not under the variable.
type FieldError struct {
	Code Code // NoBTFField or NoPtrStrct
	At   int  // where the member's name stands in the text of the variable, in bytes
	Err  error
}

func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *FieldError) Unwrap() error { return e.Err }
