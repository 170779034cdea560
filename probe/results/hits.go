// Package results holds what a session of probes returns, as plain data: hits, counters, how a
// trace ended, and listings of instructions. Package probe returns these values under the same
// names, and package output prints them.
package results

import (
	"errors"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols"
)

// Event is a definition that a session holds: one name, one or more places.
type Event struct {
	Def   *fetch.Def // the first definition of that name
	Group string
	Name  string
	// Return reports whether hits are returns (r probes and %return).
	Return bool
}

// Hit is one hit of a probe. It and all that it points to are valid only
// until the sink returns.
type Hit struct {
	Event   *Event
	Program *fetch.Program // decodes Data; its Fields name the values
	Data    []byte         // argument data of the record, as Program.Decode takes it
	Space   *symbols.Space // names addresses of the process hit
	Time    uint64         // CLOCK_MONOTONIC in nanoseconds
	PID     int            // thread group
	TID     int            // thread
	CPU     int
	Comm    string // at most 15 bytes
	// IP is the probed address; at a return probe the entry of the function
	// that returns.
	IP symbols.Addr
	// Func is the readable (demangled) name of the function that returns; "" at
	// entry probes.
	Func string
	// RetIP is where a return probe's function returned to; 0 at entry probes.
	RetIP symbols.Addr
	// Stack is the user stack if the definition asks for one: the place (IP, or
	// RetIP), and then the return addresses of the calls that lead there.
	Stack []symbols.StackFrame
	// StackEnd says why the stack has no more frames.
	StackEnd symbols.StackEnd
}

// AppendArgs appends the values of the hit, each as name=value in the form of the kernel's
// trace line (fetch.AppendText), separated by blanks. An error wraps fetch.ErrCorrupt.
func (h *Hit) AppendArgs(dst []byte) ([]byte, error) {
	vals, err := h.Program.Decode(h.Data, nil)
	if err != nil {
		return dst, err
	}
	for i, f := range h.Program.Fields() {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = append(append(dst, f.Name...), '=')
		dst = fetch.AppendText(dst, f.Type, vals[i], h.Space)
	}
	return dst, nil
}

// Sink receives hits. It is called by one goroutine at a time, in order of time over all
// processes, except for a hit that was written too late (ring.Options). An error ends the trace
// and is returned by Run. ErrStop ends it without an error.
type Sink interface {
	Hit(h *Hit) error
}

// ErrStop is what a Sink returns when it has seen enough.
var ErrStop = errors.New("enough hits")

// EndReason says why Run returned.
type EndReason uint8

// The reasons a trace ends.
const (
	EndTarget  EndReason = iota // every traced process has ended
	EndContext                  // the context was cancelled or timed out
	EndSink                     // the sink returned an error or ErrStop
)

// hidden begins the names of values that commands add to definitions for their own use.
const hidden = "__kprobe_"

// Hidden reports whether a value of that name is not for people: lines omit it.
func Hidden(name string) bool { return len(name) > len(hidden) && strings.HasPrefix(name, hidden) }
