package probe

import (
	"kprobe/fetch"
	"kprobe/probe/triggers"
)

// TriggerError says what is wrong with a trigger. Its cause is a *fetch.SyntaxError, or
// says why the trigger can't be had.
type TriggerError = triggers.Error

// ErrManyTriggers says that a session has more triggers than there can be.
var ErrManyTriggers = triggers.ErrMany

// CheckTriggers says whether triggers can be had with definitions: their events are
// there, and what their filters compare is. Errors are ErrManyTriggers and *TriggerError.
func CheckTriggers(list []*fetch.Trigger, defs []*fetch.Def) error {
	return triggers.Check(list, defs)
}
