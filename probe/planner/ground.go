package planner

import (
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
	"kprobe/probe/plan"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// What a plan is made of
//
// The planner knows no process. What it needs to know about one is its ground: what is in the
// text and where memory is free, the functions as their files have them, and what detours may
// do there. A plan is a function of the ground and the wanted places: given a ground made by a
// test, it needs no process.

// Ground is what the planner knows of an address space. The planner changes nothing in it except Code,
// to which it adds what it finds out about functions.
type Ground struct {
	Text    uint64 // the state of the text (engine: number of its changes)
	Stands  Standing
	Code    Functions
	Around  *survey.Around
	Exits   *exits.Finder
	Golang  *assess.Programs
	Params  *detour.Params  // of detours; nil if no request can be a jump
	File    symbols.Addr    // where the memory file is mapped
	Shared  *detour.Shared  // the newest code that detours share; nil: there is none
	Tallies []*detour.Tally // the tallies in the target
	// Breakpoints says that no jumps are wanted. ShadowStack says that the program has shadow
	// stacks, so that a copy of a call must itself be a call. Stacks says that stacks are
	// recorded, so that return addresses must stay on the stack.
	Breakpoints, ShadowStack, Stacks bool
	// FlagsRead says that probes may read the status flags behind the entries of functions, so that detours
	// must keep them where the program doesn't need them.
	FlagsRead bool
	// Unwinder names the mapped code that may unwind stacks; "": there is none.
	Unwinder func() string
	// Free returns the mappings, and the free room for detours in and between them.
	Free func() ([]symbols.Mapping, *plan.Space, error)
	// Hold maps a range for the plan, so that the program can't map memory there while the rest is
	// planned. free is false if something is mapped there. nil: nothing is held.
	Hold func(plan.Range) (free bool, err error)
	// Before returns the bytes that the writes of a jump, without its island, replace and that the
	// plan doesn't know (plan.Packed.Replaces). The error says why the jump can't be written:
	// something else has changed the text there.
	Before func(*plan.Packed) ([]byte, error)
	// Pause is called between two pieces of work: n of all are done in this step. An error ends
	// the planning.
	Pause func(step string, n, all int) error
}

// Standing finds the patches in the text that don't give way for the change.
type Standing interface {
	// Breakpoint returns the length of the instruction with a breakpoint at an address; ok is
	// false if there is no breakpoint.
	Breakpoint(a symbols.Addr) (length int, ok bool)
	// Taken lists the instructions in [lo, hi) that have breakpoints, and all bytes of the jumps
	// that have a byte there.
	Taken(lo, hi symbols.Addr) []plan.Range
}

// Wanted is what a change wants.
type Wanted struct {
	Requests []Request
	Own      []symbols.Addr // addresses of new breakpoints of kprobe's own
	Avoid    []plan.Range   // ranges that seem free, but in which mapping has failed
}
