package engine

import (
	"runtime/debug"

	"kprobe/probe/planner"
)

// litterPercent is how much of that there may be, in percent of what is used.
const litterPercent = 50

// litter lets more memory that is used no more lie around while many places are looked
// at, where little may: to find it again and again would take as long as all the rest.
// It returns how to have it as before.
func litter(places int) (tidy func()) {
	if places < planner.LetGoFrom {
		return func() {}
	}
	was := debug.SetGCPercent(litterPercent)
	if was < 0 || was > litterPercent {
		debug.SetGCPercent(was)
		return func() {}
	}
	return func() { debug.SetGCPercent(was) }
}
