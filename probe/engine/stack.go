package engine

import "kprobe/fetch"

// How a stack is recorded
//
// A hit leaves the registers and the innermost bytes of the stack in its record
// (fetch.StackCopy): by the detour, without a trap, or by the tracer at a breakpoint. The
// goroutine that reads the records finds the callers in that copy. So what is printed is of the
// moment of the hit. Only what is known about the code (call frame information, symbols) is
// looked up later.
//
// In a session that records stacks, return probes don't use return trampolines: a return
// trampoline in a slot would hide the caller, and its instance may have been reused when the
// record is read. Some return trampolines remain, where a return address can't carry a
// breakpoint. They are looked up in a log that says when each was placed.

// stackRing is the size of a ring in a session that records stacks, in bytes:
// 3,900 stacks of 8 KiB.
const stackRing = 32 << 20

// recordsStacks reports whether a definition of the session asks for stacks.
func (s *Engine) recordsStacks() bool { return s.Stacks.Load() }

// AddEvents adds definitions to the session's events: all, or none.
func (s *Engine) AddEvents(defs []*fetch.Def) ([]*Definition, error) {
	for _, d := range defs {
		if d.Stack > 0 {
			s.Stacks.Store(true)
		}
	}
	return s.Events.Add(defs)
}

// ringSize is the size of a ring in a new memory file; 0 is the default.
func (s *Engine) ringSize() int {
	if s.Opts.RingSize > 0 {
		return s.Opts.RingSize
	}
	if s.recordsStacks() {
		return stackRing
	}
	return 0
}
