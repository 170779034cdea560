package results

import "kprobe/probe/ring"

// Form says which bin a number has.
type Form = ring.Form

// The forms.
const (
	FormFine  = ring.FormFine
	FormLog2  = ring.FormLog2
	FormShift = ring.FormShift
)

// Bin says by which number of a program's hits they are counted, in the process that they come
// from, and how.
type Bin struct {
	Arg   int // of the program's arguments
	Form  Form
	Shift uint8 // of FormShift: bins are 1<<Shift wide
}

// Bins is what was counted like that for an event or, if it is a return probe's, for one of its
// functions.
type Bins struct {
	Event *Event
	Func  string // as Hit.Func
	Arg   string // the number's name
	Bin   Bin
	BinCounts
}

// BinCounts are the counts.
type BinCounts = ring.Bins
