package output

import (
	"kprobe/fetch"
	"kprobe/probe"
	"kprobe/symbols"
)

// Form is the shape of the output.
type Form uint8

// The forms of output.
const (
	Text Form = iota // the kernel's trace lines and tables
	JSON             // one object on each line
)

// Formatter turns hits into lines. The zero value prints text in monotonic
// time. It is not safe for concurrent use.
type Formatter struct {
	Form  Form
	Clock Clock
	// Lines adds source lines and inlined calls to the text of stacks. JSON
	// always has them.
	Lines bool

	names  names
	vals   []fetch.Value
	event  *probe.Event // whose fixed text is in head
	head   []byte
	events map[*probe.Event][]byte

	frames   map[symbols.StackFrame]*frameText // of framesOf
	framesOf *symbols.Space
	mapped   []symbols.Mapping // what framesOf had mapped
}

// names lends a Space to fetch's printers. It lives in the Formatter so that
// handing it on as an interface allocates nothing.
type names struct{ space *symbols.Space }

// SymbolAt implements fetch.Symbolizer.
func (n *names) SymbolAt(a symbols.Addr) (name string, off, size uint64, ok bool) {
	if n.space == nil {
		return "", 0, 0, false
	}
	name, off, size, _, ok = n.space.Symbolize(a)
	return name, off, size, ok
}

// Append appends the line of a hit, newline included. A record that can't be
// decoded is an error, and then dst comes back as it was.
func (f *Formatter) Append(dst []byte, h *probe.Hit) ([]byte, error) {
	vals, err := h.Program.Decode(h.Data, f.vals[:0])
	if err != nil {
		return dst, err
	}
	f.vals = vals
	f.names.space = h.Space
	if h.Event != f.event {
		f.choose(h.Event)
	}
	if f.Form == JSON {
		return f.appendJSON(dst, h), nil
	}
	return f.appendText(dst, h), nil
}

// maxHeads is how many events' fixed texts are remembered at most.
const maxHeads = 4096

// choose prepares the part of the lines that is the same for all hits of an
// event.
func (f *Formatter) choose(e *probe.Event) {
	head, ok := f.events[e]
	if !ok {
		if f.events == nil || len(f.events) >= maxHeads {
			f.events = map[*probe.Event][]byte{} // events come and go while a trace runs
		}
		if f.Form == JSON {
			head = appendString(append(head, `,"group":`...), e.Group)
			head = appendString(append(head, `,"event":`...), e.Name)
			head = append(head, `,"comm":`...)
		} else {
			head = append(append(append(head, ':', ' '), e.Name...), ": ("...)
		}
		f.events[e] = head
	}
	f.event, f.head = e, head
}
