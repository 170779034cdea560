package probe

import (
	"kprobe/fetch"
	"kprobe/probe/triggers"
)

// TriggerError says what is wrong with a trigger. Its cause is a *fetch.SyntaxError, or the
// reason why the trigger is impossible.
type TriggerError = triggers.Error

// ErrManyTriggers says that a session has too many triggers.
var ErrManyTriggers = triggers.ErrMany

// CheckTriggers reports whether triggers fit definitions: the definitions have the triggers'
// events, and the values that their filters compare. Errors are ErrManyTriggers and
// *TriggerError.
func CheckTriggers(list []*fetch.Trigger, defs []*fetch.Def) error {
	return triggers.Check(list, defs)
}
