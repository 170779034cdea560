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

// Ground is what the planner knows of an address space. It changes nothing of it but
// what is known of functions.
type Ground struct {
	Text    uint64 // the state of the text that it is of
	Stands  Standing
	Code    Functions
	Around  *survey.Around
	Exits   *exits.Finder
	Golang  *assess.Programs
	Params  *detour.Params  // of detours; nil where no jump can come of the change
	File    symbols.Addr    // where the memory file lies
	Shared  *detour.Shared  // the code that return probes share, as it was laid last; nil: it wasn't
	Tallies []*detour.Tally // code that counts, where it was laid
	// Breakpoints says that no jumps are wanted, ShadowStack that calls must be calls,
	// Stacks that callers must be seen on the stack.
	Breakpoints, ShadowStack, Stacks bool
	// Unwinder names what walks the stacks; "": nothing does.
	Unwinder func() string
	// Free tells the mappings, and where in them detours can lie.
	Free func() ([]symbols.Mapping, *plan.Space, error)
	// Before gives the bytes that the writes of a jump, without its island, replace. The
	// error says why it can't be written: something else has changed the text there.
	Before func(*plan.Patch) ([]plan.Write, error)
	// Pause is called between two pieces of work, of which n of all are done in a step;
	// its error says that the plan is wanted no more.
	Pause func(step string, n, all int) error
}

// Standing is what stands in the text, and doesn't make way.
type Standing interface {
	// Breakpoint gives the length of the instruction whose breakpoint is at an address;
	// ok is false where there is none.
	Breakpoint(a symbols.Addr) (length int, ok bool)
	// Taken lists the bytes in [lo, hi) that breakpoints have, and all of the jumps that
	// have bytes there.
	Taken(lo, hi symbols.Addr) []plan.Range
}

// Wanted is what is to be planned.
type Wanted struct {
	Requests []Request
	Own      []symbols.Addr // where breakpoints of kprobe's own come
	Avoid    []plan.Range   // memory that only seems free
}
