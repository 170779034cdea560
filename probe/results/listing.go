package results

import (
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// Kind says how a probe at an instruction works.
type Kind uint8

// The kinds of probe, from the most expensive to the cheapest.
const (
	KindRefused    Kind = iota // can't be probed
	KindBreakpoint             // int3, the copy is single-stepped (k)
	KindBoosted                // int3, the copy jumps back (b)
	KindShortJump              // a short jump to a jump
	KindGuarded                // a jump over several instructions, guarded
	KindJump                   // a jump (o)
)

// String returns the name that show prints: "refused", "breakpoint", "short-jump",
// "guarded-jump" or "jump".
func (k Kind) String() string {
	switch k {
	case KindBreakpoint, KindBoosted:
		return "breakpoint"
	case KindShortJump:
		return "short-jump"
	case KindGuarded:
		return "guarded-jump"
	case KindJump:
		return "jump"
	}
	return "refused"
}

// Line is one instruction of a listing.
type Line struct {
	Addr   symbols.Addr
	Offset uint64 // from the function's start
	Bytes  []byte
	Text   string // Intel syntax
	Source string // FILE:LINE, "" where unknown
	Probe  Kind
	Tactic plan.Tactic // what makes it that kind
	Why    string      // why not something better, the reasons apart by "; "; "" at the best
}

// Listing is a function with its instructions.
type Listing struct {
	Func   symbols.Func
	Module *symbols.Module
	Name   string
	Asked  uint64 // offset of the place that was asked for
	Lines  []Line
}
