package results

import "kprobe/probe/ring"

// Form is how numbers are given bins.
type Form = ring.Form

// The forms.
const (
	FormFine  = ring.FormFine
	FormLog2  = ring.FormLog2
	FormShift = ring.FormShift
)

// Bin says by which number of a program's hits they are counted in the process that
// they come from, and how.
type Bin struct {
	Arg   int // of the program's arguments
	Form  Form
	Shift uint8 // of FormShift: bins are 1<<Shift wide
}

// Bins is what was counted so for an event, or, of a return probe, for one of the
// functions that it is of.
type Bins struct {
	Event *Event
	Func  string // as Hit.Func
	Arg   string // the number's name
	Bin   Bin
	BinCounts
}

// BinCounts are the counts.
type BinCounts = ring.Bins
