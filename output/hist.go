package output

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"kprobe/fetch"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// Histograms is a results.Sink that counts hits by their values: one histogram
// for each spec and each event that has the spec's values. Hit is called from
// one goroutine, the Append methods from any.
type Histograms struct {
	Specs []*HistSpec
	// Next gets the hits too; nil is none.
	Next results.Sink
	// Limit is the number of hits after which the trace ends, where Next has
	// none of its own; 0 is none.
	Limit uint64

	mu    sync.Mutex
	hits  uint64                         // guarded by mu
	all   []*hist                        // guarded by mu, in order of the first hit
	byRun map[*fetch.Program][]histFetch // guarded by mu
	bins  []results.Bins                 // guarded by mu: what was counted elsewhere
	last  *fetch.Program                 // guarded by mu: of the last hit
	bound []histFetch                    // guarded by mu: of last
	vals  []fetch.Value
	names names
	key   []byte
}

// hist is one histogram.
type hist struct {
	spec    *HistSpec
	event   *results.Event
	hits    uint64 // that are in entries
	dropped uint64 // that found no entry of theirs, and no room for one
	entries map[string]*histEntry
}

type histEntry struct {
	raw   []uint64 // the keys as numbers; of texts 0
	texts []string // the keys as texts; of numbers ""
	shown []byte   // "{ … }" as the kernel prints it
	json  []byte   // the object of the keys
	count uint64
	sums  []uint64 // of vals
}

// histFetch is a histogram that a program's hits belong to, and where its
// fields are among the program's: below 0 the common ones.
type histFetch struct {
	h          *hist
	keys, vals []int
}

// The fields that are none of a program's.
var commonFields = []string{fieldPID, fieldCPU, fieldComm, fieldTime, fieldStack, fieldIP, fieldFunc, fieldRetIP}

// atStack is the place of the stack.
var atStack = -1 - slices.Index(commonFields, fieldStack)

// atHitcount is the place of the number of hits, where it is shown once more:
// behind the common fields.
var atHitcount = -1 - len(commonFields)

// Hit implements results.Sink.
func (g *Histograms) Hit(h *results.Hit) error {
	if err := g.count(h); err != nil {
		return err
	}
	if g.Next != nil {
		return g.Next.Hit(h)
	}
	if g.hits == g.Limit && g.Limit != 0 {
		return results.ErrStop
	}
	return nil
}

func (g *Histograms) count(h *results.Hit) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Limit != 0 && g.hits >= g.Limit {
		return results.ErrStop
	}
	vals, err := h.Program.Decode(h.Data, g.vals[:0])
	if err != nil {
		return err
	}
	g.vals = vals
	g.hits++
	if g.last != h.Program || g.last == nil {
		fetches, ok := g.byRun[h.Program]
		if !ok {
			fetches = g.bind(h)
		}
		g.last, g.bound = h.Program, fetches
	}
	for i := range g.bound {
		g.add(&g.bound[i], h)
	}
	return nil
}

// maxBound is how many programs' histograms are remembered at most.
const maxBound = 1 << 14

// bind finds the histograms that the hits of a program belong to.
func (g *Histograms) bind(h *results.Hit) []histFetch {
	var out []histFetch
	fields := h.Program.Fields()
	find := func(list []histField, counts bool) ([]int, bool) {
		var at []int
		for _, f := range list {
			i := slices.IndexFunc(fields, func(x fetch.Field) bool { return x.Name == f.name })
			if f.name == hitcount && counts {
				i = atHitcount
			} else if c := slices.Index(commonFields, f.name); i < 0 && c >= 0 && hasField(f.name, h.Event.Return) {
				i = -1 - c
			} else if i < 0 {
				return nil, false
			}
			at = append(at, i)
		}
		return at, true
	}
	for _, spec := range g.Specs {
		keys, ok := find(spec.keys, false)
		vals, has := find(spec.vals, true)
		if !ok || !has {
			continue
		}
		i := slices.IndexFunc(g.all, func(x *hist) bool { return x.spec == spec && x.event == h.Event })
		if i < 0 {
			i = len(g.all)
			g.all = append(g.all, &hist{spec: spec, event: h.Event, entries: map[string]*histEntry{}})
		}
		out = append(out, histFetch{g.all[i], keys, vals})
	}
	if g.byRun == nil || len(g.byRun) >= maxBound {
		g.byRun = map[*fetch.Program][]histFetch{} // probes come and go while a trace runs
	}
	g.byRun[h.Program] = out
	return out
}

// add counts a hit in a histogram.
func (g *Histograms) add(f *histFetch, h *results.Hit) {
	g.key = g.key[:0]
	for i, at := range f.keys {
		g.key = g.appendKey(g.key, &f.h.spec.keys[i], at, h)
	}
	e := f.h.entries[string(g.key)]
	if e == nil {
		if len(f.h.entries) >= f.h.spec.size {
			f.h.dropped++
			return
		}
		e = g.entry(f, h)
		f.h.entries[string(g.key)] = e
	}
	f.h.hits++
	e.count++
	for i, at := range f.vals {
		v, _, _ := g.value(at, h)
		e.sums[i] += v
	}
}

// The states of a text.
const (
	textWhole = iota
	textCut   // there was more
	textFault // it couldn't be read
	textDone  // it is in the form in which it is printed
)

// state says what a field's text is.
func (g *Histograms) state(at int, h *results.Hit) byte {
	if at < 0 {
		return textDone // a thread's name
	}
	switch x, t := &g.vals[at], h.Program.Fields()[at].Type; {
	case x.Fault:
		return textFault
	case t.IsArray() || t.Layout != nil || t.Base == fetch.Float || t.Base == fetch.Char:
		return textDone
	case x.Truncated:
		return textCut
	}
	return textWhole
}

// value gives a field's number, or its text.
func (g *Histograms) value(at int, h *results.Hit) (v uint64, text []byte, isText bool) {
	if at >= 0 {
		x := &g.vals[at]
		t := h.Program.Fields()[at].Type
		switch {
		case x.Fault:
			return 0, []byte("(fault)"), true
		case t.IsArray() || t.Layout != nil || t.Base == fetch.Float || t.Base == fetch.Char:
			g.names.space = h.Space
			return x.Int, fetch.AppendText(nil, t, *x, &g.names), true
		case t.IsText():
			return 0, x.Bytes, true
		}
		return x.Int, nil, false
	}
	if at == atHitcount {
		return 1, nil, false
	}
	switch commonFields[-1-at] {
	case fieldPID:
		return uint64(h.TID), nil, false
	case fieldCPU:
		return uint64(h.CPU), nil, false
	case fieldTime:
		return h.Time, nil, false
	case fieldIP, fieldFunc:
		return uint64(h.IP), nil, false
	case fieldRetIP:
		return uint64(h.RetIP), nil, false
	}
	return 0, []byte(h.Comm), true
}

// number applies the modifier of a key to its value.
func (f *histField) number(v uint64) uint64 {
	switch f.mod {
	case "log2":
		// The exponent of the power of two that is not below v.
		return uint64(bits.Len64(v - min(v, 1)))
	case "buckets":
		return v - v%f.buckets
	}
	return v
}

// appendKey appends what tells a key from others.
func (g *Histograms) appendKey(dst []byte, f *histField, at int, h *results.Hit) []byte {
	if at == atStack {
		dst = binary.LittleEndian.AppendUint64(append(dst, 2), uint64(len(h.Stack)))
		for _, frame := range h.Stack {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(frame.Addr))
		}
		return dst
	}
	v, text, isText := g.value(at, h)
	if !isText {
		return binary.LittleEndian.AppendUint64(append(dst, 0), f.number(v))
	}
	dst = binary.LittleEndian.AppendUint64(append(dst, 1, g.state(at, h)), uint64(len(text)))
	return append(dst, text...)
}

// entry makes the entry of a hit. What its keys are called is found out now:
// the process may be gone when they are printed.
func (g *Histograms) entry(f *histFetch, h *results.Hit) *histEntry {
	e := &histEntry{sums: make([]uint64, len(f.vals))}
	e.shown, e.json = append(e.shown, '{', ' '), append(e.json, '{')
	g.names.space = h.Space
	for i, at := range f.keys {
		spec := &f.h.spec.keys[i]
		if i > 0 {
			e.shown, e.json = append(e.shown, ',', ' '), append(e.json, ',')
		}
		if at == atStack {
			e.raw, e.texts = append(e.raw, 0), append(e.texts, "")
			e.shown, e.json = appendHistStack(e.shown, h, &g.names), appendHistStackJSON(e.json, spec.key, h)
			continue
		}
		v, text, isText := g.value(at, h)
		k := histKey{spec: spec, v: spec.number(v), text: text, isText: isText, state: g.state(at, h), comm: h.Comm}
		if !isText {
			if at >= 0 {
				k.signed = h.Program.Fields()[at].Type.Base == fetch.Signed && spec.mod == ""
				k.symbol = h.Program.Fields()[at].Type.Base == fetch.SymbolName && spec.mod == ""
			}
			if k.signed {
				v ^= 1 << 63 // negative numbers come first
				e.raw = append(e.raw, v)
			} else {
				e.raw = append(e.raw, k.v)
			}
		} else {
			e.raw = append(e.raw, 0)
		}
		e.texts = append(e.texts, string(text))
		e.shown = k.appendText(e.shown, &g.names)
		e.json = k.appendJSON(e.json, &g.names)
	}
	if e.shown[len(e.shown)-1] != '\n' {
		e.shown = append(e.shown, ' ')
	}
	e.shown, e.json = append(e.shown, '}'), append(e.json, '}')
	return e
}

// sorted gives the entries in the spec's order, those that are equal there in
// the order of their keys.
func (h *hist) sorted() []*histEntry {
	out := make([]*histEntry, 0, len(h.entries))
	for _, e := range h.entries {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *histEntry) int {
		for _, s := range h.spec.sorts {
			c := h.compare(s.name, a, b)
			if s.descending {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		for i := range a.raw {
			if c := cmp.Or(cmp.Compare(a.raw[i], b.raw[i]), strings.Compare(a.texts[i], b.texts[i])); c != 0 {
				return c
			}
		}
		return bytes.Compare(a.shown, b.shown)
	})
	return out
}

func (h *hist) compare(name string, a, b *histEntry) int {
	if name == hitcount {
		return cmp.Compare(a.count, b.count)
	}
	for i, f := range h.spec.keys {
		if f.name == name {
			return cmp.Or(cmp.Compare(a.raw[i], b.raw[i]), strings.Compare(a.texts[i], b.texts[i]))
		}
	}
	for i, f := range h.spec.vals {
		if f.name == name {
			return cmp.Compare(a.sums[i], b.sums[i])
		}
	}
	return 0
}

// symbol names an address without the offset in it, "" where none is known.
func symbol(sym fetch.Symbolizer, v uint64) string {
	name, _, _, ok := sym.SymbolAt(symbols.Addr(v))
	if !ok {
		return ""
	}
	return name
}
