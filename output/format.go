package output

import (
	"kprobe/fetch"
	"kprobe/internal/quote"
	"kprobe/probe/results"
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
	// Signatures has text name functions of C++ and Rust with their parameters
	// and template arguments, as JSON always does.
	Signatures bool

	names  names
	vals   []fetch.Value
	before uint64         // the time of the hit before
	event  *results.Event // whose fixed text is in head
	head   []byte
	events map[*results.Event][]byte
	second second
	whose  [16]whose // by thread and CPU

	frames   map[symbols.StackFrame]*frameText // of framesOf
	framesOf *symbols.Space
	mapped   []symbols.Mapping // what framesOf had mapped
	renamed  uint64            // and how often its names had changed
}

// names lends a Space to fetch's printers. It lives in the Formatter so that
// handing it on as an interface allocates nothing.
type names struct {
	space *symbols.Space
	short bool
}

// SymbolAt implements fetch.Symbolizer.
func (n *names) SymbolAt(a symbols.Addr) (name string, off, size uint64, ok bool) {
	if n.space == nil {
		return "", 0, 0, false
	}
	name, off, size, _, ok = n.space.NameAt(a, n.short)
	return name, off, size, ok
}

// Append appends the line of a hit, newline included. A record that can't be
// decoded is an error, and then dst comes back as it was.
func (f *Formatter) Append(dst []byte, h *results.Hit) ([]byte, error) {
	vals, err := h.Program.Decode(h.Data, f.vals[:0])
	if err != nil {
		return dst, err
	}
	f.vals = vals
	f.names = names{h.Space, f.Form == Text && !f.Signatures}
	if h.Event != f.event {
		f.choose(h.Event)
	}
	if f.Form == JSON {
		dst = f.appendJSON(dst, h)
	} else {
		dst = f.appendText(dst, h)
	}
	f.before = h.Time
	return dst, nil
}

// byFunction reports whether an event goes by the names of its functions, or of its
// statically defined probes, in lines of text: that of a pattern to which nobody gave
// a name.
func byFunction(e *results.Event) bool { return e.Def != nil && !e.Def.Named && e.Def.Place.IsGlob() }

// maxHeads is how many events' fixed texts are remembered at most.
const maxHeads = 4096

// choose prepares the part of the lines that is the same for all hits of an
// event.
func (f *Formatter) choose(e *results.Event) {
	head, ok := f.events[e]
	if !ok {
		if f.events == nil || len(f.events) >= maxHeads {
			f.events = map[*results.Event][]byte{} // events come and go while a trace runs
		}
		if f.Form == JSON {
			head = quote.AppendJSON(append(head, `,"group":`...), e.Group)
			head = quote.AppendJSON(append(head, `,"event":`...), e.Name)
			head = append(head, `,"comm":`...)
		} else if !byFunction(e) {
			head = append(quote.AppendPlain(append(head, ':', ' '), e.Name), ": ("...)
		}
		f.events[e] = head
	}
	f.event, f.head = e, head
}
