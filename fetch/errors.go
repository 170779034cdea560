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
