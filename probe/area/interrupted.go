package area

import (
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Interrupted reports whether a stopped thread is in a fallback handler, or will be in kprobe's
// code again when a signal handler returns.
func (a *Area) Interrupted(t *tracee.Thread) bool {
	regs, err := t.Regs()
	return err == nil && (a.Fallbacks.Holds(symbols.Addr(regs.Rip)) || t.Interrupted(a.interrupted))
}

// drained reports whether each thread is, or can be moved, out of kprobe's code.
func (a *Area) drained(stopped []*tracee.Thread) bool {
	for _, t := range stopped {
		if a.moveOut(t) != nil || t.Interrupted(a.interrupted) {
			return false
		}
	}
	return true
}

// interrupted reports whether kprobe's code at pc, which a signal has interrupted, is still to
// be continued. It isn't if the signal was a trap of that code itself: then the fallback
// handler has led the thread on and has returned, and the frame on the stack is an old one that
// nothing has overwritten.
func (a *Area) interrupted(pc symbols.Addr, trapped bool) bool {
	return a.holds(pc) && (!trapped || a.Fallbacks.Holds(pc))
}
