// Package report makes tables of recordings, and files for other tools.
package report

import (
	"errors"
	"io"
	"maps"
	"math"
	"slices"

	"kprobe/internal/quote"
	"kprobe/output/calls"
	"kprobe/output/recording"
)

const (
	maxRows = 1 << 16
	// MaxPaths bounds the paths.
	MaxPaths = 1 << 20
	maxNames = 1000
)

// Report counts a recording in memory that its length doesn't change.
type Report struct {
	// By says what rows are of: func, stack, thread or the name of a value.
	By string
	// Weight is the name of a value by which paths are weighed, in the place of time or
	// of how often they came; "" is none.
	Weight string
	// Width is that of the terminal, in columns, to which Table and Diff shorten names;
	// 0: there is none.
	Width int
	// Also gets the calls too; nil is none. With Texts it can tell their values.
	Also  calls.Sink
	Texts bool

	Hits   uint64
	First  uint64 // time of the first hit, ns
	Last   uint64
	Tracks calls.Tracker
	Nested bool // there are calls within calls
	Stacks bool // hits have stacks

	Weighed    uint64 // hits with the value of Weight
	Weightless uint64 // hits with that value where it can't be a weight: negative, unreadable, no number
	Cut        uint64 // calls and hits without a path of their own: there was no room
	Deep       uint64 // calls that lie deeper than MaxDepth: their paths lack the outermost

	events   map[*recording.Event]bool
	numbers  map[string]bool // values that could be weights
	texts    map[string]bool // all other values
	valued   bool            // a hit has the value that rows are by
	rows     map[string]*Row
	byFunc   map[*recording.Place]*Row
	byThread map[*recording.Thread]*Row
	row      *Row
	of       string
	nested   nested
	tree     *node
	size     int
}

// MaxDepth bounds how many calls a path has, from the innermost.
const MaxDepth = 256

// note is what is kept of a hit of a call.
type note struct {
	by     string // of the value that rows are by
	hasBy  bool
	weight uint64
	weighs bool
	text   string // all values
	trace  string // that the call works for
}

// Read counts all of a recording. A *recording.DamagedError is told, and what comes
// before is counted.
func (r *Report) Read(in *recording.Reader) error {
	r.Begin()
	r.Tracks.Pair(in.Header.Paired)
	var damaged error
	for {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		var d *recording.DamagedError
		if errors.As(err, &d) {
			damaged = err
			break
		}
		if err != nil {
			return err
		}
		if err := r.Hit(h); err != nil {
			return err
		}
	}
	if err := r.Tracks.Finish(); err != nil {
		return err
	}
	return damaged
}

// Begin prepares for the first hit.
func (r *Report) Begin() {
	r.rows, r.tree, r.nested = map[string]*Row{}, &node{}, nested{}
	r.Tracks.Sink = r
	if r.byValue() || r.Weight != "" || r.Texts {
		r.Tracks.Note = r.note
	}
}

func (r *Report) byValue() bool { return r.By != "func" && r.By != "stack" && r.By != "thread" }

// note keeps of a call's hit what the report counts.
func (r *Report) note(h *recording.Hit) any {
	var n note
	if r.byValue() {
		n.by, n.hasBy = r.value(h)
	}
	n.weight, n.weighs = r.weight(h)
	if r.Texts && len(h.Event.Fields) > 0 {
		n.text, n.trace = string(AppendValues(nil, h)), traceOf(h)
	}
	return n
}

// traceValue is the name of the value that says for which trace a call works.
const traceValue = "trace_id"

// traceOf is the trace that a hit's call works for; "" is: none is told.
func traceOf(h *recording.Hit) string {
	for i, f := range h.Event.Fields {
		switch v := &h.Values[i]; {
		case f.Name != traceValue || v.State == recording.Fault:
		case f.Kind == recording.Text:
			return string(quote.AppendPlain(nil, string(v.Text)))
		default:
			return string(AppendValue(nil, f.Kind, v))
		}
	}
	return ""
}

// value is the text of the value that rows are by.
func (r *Report) value(h *recording.Hit) (text string, ok bool) {
	r.learn(h.Event)
	for i, f := range h.Event.Fields {
		if f.Name == r.By {
			r.valued = true
			return string(AppendValue(nil, f.Kind, &h.Values[i])), true
		}
	}
	return "", false
}

// weight is the value that a hit is weighed by.
func (r *Report) weight(h *recording.Hit) (w uint64, ok bool) {
	if r.Weight == "" {
		return 0, false
	}
	r.learn(h.Event)
	for i, f := range h.Event.Fields {
		if f.Name != r.Weight {
			continue
		}
		v := &h.Values[i]
		switch {
		case v.State != recording.Whole, f.Kind == recording.Signed && int64(v.Int) < 0, f.Kind == recording.Float && !(v.Float >= 0 && v.Float < 1<<63):
			r.Weightless++
			return 0, false
		case f.Kind == recording.Float:
			w = uint64(v.Float)
		case f.Kind == recording.Unsigned, f.Kind == recording.Signed, f.Kind == recording.Hex:
			w = v.Int
		default:
			r.Weightless++
			return 0, false
		}
		r.Weighed++
		return w, true
	}
	return 0, false
}

// learn notes which values an event has, and which of them could be weights.
func (r *Report) learn(e *recording.Event) {
	if r.events[e] || len(r.numbers)+len(r.texts) >= maxNames {
		return
	}
	if r.events == nil || len(r.events) >= maxNames {
		r.events = map[*recording.Event]bool{}
	}
	if r.numbers == nil {
		r.numbers, r.texts = map[string]bool{}, map[string]bool{}
	}
	r.events[e] = true
	for _, f := range e.Fields {
		if f.Kind < recording.Text {
			r.numbers[f.Name] = true
		} else {
			r.texts[f.Name] = true
		}
	}
}

// Numbers are the names of values that could be weights, of a report with Weight.
func (r *Report) Numbers() []string { return slices.Sorted(maps.Keys(r.numbers)) }

// Values are the names of all values that hits have, of a report by a value or with
// Weight.
func (r *Report) Values() []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(r.numbers)), maps.Keys(r.texts))
	slices.Sort(all)
	return all
}

// Valueless reports that rows are by a value that no hit has.
func (r *Report) Valueless() bool { return r.byValue() && !r.valued && r.Hits > 0 }

// Hit counts a hit.
func (r *Report) Hit(h *recording.Hit) error {
	if r.Hits == 0 {
		r.First = h.Time
	}
	r.Hits++
	r.Last = max(r.Last, h.Time)
	if err := r.Tracks.Hit(h); err != nil {
		return err
	}
	call := r.Tracks.IsCall(h) && !r.Tracks.Alone
	weight, weighs := uint64(0), false
	if !call || h.Stack != nil {
		if weight, weighs = r.weight(h); call && weighs {
			r.Weighed-- // the call counts it
		}
	}
	switch {
	case h.Stack != nil:
		r.Stacks = true
		if r.Weight == "" || weighs {
			r.add(r.stack(h.Stack), 1, weight)
		}
	case weighs:
		r.add(r.step(r.tree, h.Place), 1, weight)
	}
	if call {
		return nil
	}
	// A hit of a place, of which there is no more to know.
	var row *Row
	switch r.By {
	case "func":
		row = r.at(placeName(h))
	case "thread":
		row = r.atThread(h.Thread, h.Time)
	case "stack":
		if h.Stack != nil {
			row = r.at(pathOf(h.Stack))
		}
	default:
		if v, ok := r.value(h); ok {
			row = r.at(v)
		}
	}
	if row != nil {
		row.Hits++
		row.Weight = sum(row.Weight, weight)
	}
	return nil
}

// sum adds without running over.
func sum(a, b uint64) uint64 {
	if a+b < a {
		return math.MaxUint64
	}
	return a + b
}

// Enter implements calls.Sink.
func (r *Report) Enter(c *calls.Call) error {
	r.Nested = r.Nested || c.Parent != nil
	if r.Also != nil {
		return r.Also.Enter(c)
	}
	return nil
}

// Leave implements calls.Sink.
func (r *Report) Leave(c *calls.Call) error {
	now := r.Tracks.Now()
	self := c.Self(now)
	in, _ := c.In.(note)
	out, _ := c.Out.(note)
	weight := in
	if out.weighs {
		weight = out
	}
	switch {
	case r.Stacks || r.Weight != "" && !weight.weighs:
	case r.Weight != "":
		r.add(r.path(c), 1, weight.weight)
	default:
		r.add(r.path(c), 1, self)
	}
	row := r.rowOf(c)
	total := r.total(c, c.Time(now))
	if r.byValue() {
		total = r.nested.leave(c, row, total)
	}
	if row != nil {
		row.Weight = sum(row.Weight, weight.weight)
		row.Self += self
		row.Total += total
		switch c.End {
		case calls.Open:
			row.Open++
		case calls.Left:
			row.Left++
			row.Times.Add(c.Time(now))
		default:
			row.Times.Add(c.Time(now))
		}
		row.Calls = row.Times.Count
	}
	if r.Also != nil {
		return r.Also.Leave(c)
	}
	return nil
}

// rowOf is the row of a call; nil: it lacks the value that rows are by.
func (r *Report) rowOf(c *calls.Call) *Row {
	switch r.By {
	case "func":
		return r.atFunc(c.Func)
	case "thread":
		if c.G != 0 {
			return r.at(trackName(c))
		}
		return r.atThread(c.Thread, c.Entry)
	case "stack":
		return r.at(callPath(c))
	}
	by, _ := c.In.(note)
	if out, _ := c.Out.(note); out.hasBy {
		by = out
	}
	if !by.hasBy {
		return nil
	}
	return r.at(by.by)
}

// timed reports whether nodes have times, and not only numbers of hits, or weights.
func (r *Report) timed() bool { return r.Weight == "" && !r.Stacks && r.Tracks.Hits > 0 }

// measure is what a node itself counts for: time, weight, or how often it came.
func (r *Report) measure(n *node) uint64 {
	if r.Weight != "" || r.timed() {
		return n.self
	}
	return n.calls
}
