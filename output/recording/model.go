package recording

import "strconv"

// Header says what was recorded, where and when.
type Header struct {
	Kprobe      string   `json:"kprobe,omitempty"` // the version that wrote it
	Host        string   `json:"host,omitempty"`
	Boot        string   `json:"boot,omitempty"` // the boot's id: times of other boots are others
	Mono        uint64   `json:"mono"`           // a moment by CLOCK_MONOTONIC, in which all times are
	Wall        int64    `json:"wall"`           // the same moment in nanoseconds since 1970
	Command     []string `json:"command,omitempty"`
	PIDs        []int    `json:"pids,omitempty"`
	Definitions []string `json:"definitions,omitempty"`
	// Calls says that functions are recorded at their entry and at their return.
	Calls bool `json:"calls,omitempty"`
	// Paired are the addresses of functions that have a probe at the entry and one at the
	// return, and whose hits don't say which of them are of the same call: they nest.
	Paired []uint64 `json:"paired,omitempty"`
}

// Modules are the files that a process has mapped.
type Modules struct {
	PID  int      `json:"pid"`
	List []Module `json:"modules"`
}

// Module is a file that a process has mapped.
type Module struct {
	Path    string `json:"path"`
	BuildID string `json:"build_id,omitempty"`
	Main    bool   `json:"main,omitempty"`
	Bias    uint64 `json:"bias"`
	Start   uint64 `json:"start"`
	End     uint64 `json:"end"`
}

// End says how the recording ended, and what isn't in it.
type End struct {
	Hits   uint64  `json:"hits"` // that are in the file
	Events []Count `json:"events"`
	// Overwritten are hits that were older than the first, and made room for later ones.
	Overwritten uint64 `json:"overwritten,omitempty"`
}

// Sum is what became of the hits of all events. Of no End it is zero.
func (e *End) Sum() (c Count) {
	if e == nil {
		return c
	}
	for _, x := range e.Events {
		c.Hits += x.Hits
		c.Recorded += x.Recorded
		c.Filtered += x.Filtered
		c.Lost += x.Lost
		c.Limited += x.Limited
		c.Missed += x.Missed
	}
	return c
}

// Count is what became of an event's hits.
type Count struct {
	Group    string `json:"group"`
	Event    string `json:"event"`
	Hits     uint64 `json:"hits"`
	Recorded uint64 `json:"recorded"`
	Filtered uint64 `json:"filtered"`
	Lost     uint64 `json:"lost"`
	Limited  uint64 `json:"limited,omitempty"`
	Missed   uint64 `json:"missed"`
}

// Kind is what the values of a field are.
type Kind uint8

// The kinds of values.
const (
	Unsigned Kind = iota
	Signed
	Hex
	Float
	Text  // as the program has it
	Shown // as a trace prints it: structures, arrays, symbols
)

// State is what a value is.
type State uint8

// The states of values.
const (
	Whole   State = iota
	Fault         // not readable
	Cut           // of a text: there was more
	Printed       // as a trace prints it, whatever the kind
)

// Value is a value of a hit.
type Value struct {
	State State
	Int   uint64  // of Unsigned, Signed and Hex
	Float float64 // of Float
	Text  []byte  // of the others, and of Printed ones
}

// Field names a value of an event's hits.
type Field struct {
	Name string
	Type string // as definitions have it; "" is none
	Kind Kind
}

// Event is a definition's name and what its hits have.
type Event struct {
	Group, Name string
	Return      bool // hits are returns
	Entry       bool // hits are entries of functions
	Go          bool // the code is Go's: hits have the goroutine
	Static      bool // it is a statically defined probe: its name says what was hit
	Fields      []Field

	def
}

// Place is an address and what it is called.
type Place struct {
	Name   string // of the function; "" is unknown
	Module string // the file's base name
	Addr   uint64
	Off    uint64 // from the function's start
	Size   uint64 // the function's

	def
}

// String gives the function, with the distance from its start if there is one, or
// the address.
func (p *Place) String() string {
	switch {
	case p.Name == "":
		return "0x" + strconv.FormatUint(p.Addr, 16)
	case p.Off == 0:
		return p.Name
	}
	return p.Name + "+0x" + strconv.FormatUint(p.Off, 16)
}

// Thread is one of a process's.
type Thread struct {
	PID, TID int
	Comm     string

	def
}

// Stack is how a place was come to.
type Stack struct {
	Frames []*Place // innermost first
	End    string   // why there are no more; "" is that it is whole

	def
}

// def is a definition's number in the file of the last writer that it was given to; of is
// that one's count of r.
type def struct {
	by *Writer
	id uint32
	of uint32
}

// Hit is a hit. It is valid until the next one is asked for; what it points to
// remains.
type Hit struct {
	Event  *Event
	Thread *Thread
	CPU    int
	Time   uint64 // CLOCK_MONOTONIC, ns
	// Entry is when the call was entered that returns here; 0 is not known.
	Entry uint64
	// SP is the stack pointer at the entry of a function whose return is recorded,
	// too; else 0.
	SP uint64
	// G is the address of the goroutine; 0 is none, or not known.
	G      uint64
	Place  *Place // of a return the function's start
	Caller *Place // where a function returns to; nil at others
	Stack  *Stack // nil: none was asked for
	Values []Value
}
