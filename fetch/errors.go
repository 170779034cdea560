package fetch

import "errors"

// ErrNoDebugInfo is wrapped by the errors of an Env's Variable and Parameters if the probed
// file has no debug information.
var ErrNoDebugInfo = errors.New("no debug information")

// ErrNoValue is wrapped by an Env's error about a variable that exists but has no value at the
// place: the compiler has optimized it out there.
var ErrNoValue = errors.New("optimized out")

// ErrInParts is wrapped by a DebugEnv's error about an argument that has several words, which
// its Variable has as a whole.
var ErrInParts = errors.New("it has several words: fetch it alone, without a type, or by its name")

// ErrNoResult is wrapped by an Env's error about the result of a function that returns nothing.
var ErrNoResult = errors.New("the function returns nothing")

// ErrCorrupt is wrapped by Decode's error for data that no Eval wrote.
var ErrCorrupt = errors.New("corrupt argument data")

// FieldError is wrapped by an Env's error about a member that is unavailable: the caret goes
// under the member, instead of under the variable.
type FieldError struct {
	Code Code // NoBTFField or NoPtrStrct
	At   int  // where the member's name stands in the text of the variable, in bytes
	Err  error
}

func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }
