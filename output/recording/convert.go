package recording

import (
	"encoding/binary"
	"math"

	"kprobe/fetch"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// EntryName is the argument of return probes that is no value of a hit but the
// time of the call. It must be the last one.
const EntryName = "__kprobe_entry"

// EntryArg is that argument as definitions have it, with the one before it.
const EntryArg = goName + "=%r14 " + EntryName + "=$entrytime"

// StackName is likewise, of probes of functions' entries, the stack pointer.
const StackName = "__kprobe_sp"

// StackArg is that argument as definitions have it, with the one before it.
const StackArg = goName + "=%r14 " + StackName + "=$stack"

// goName stands before either: in Go's code the register is the goroutine's.
const goName = "__kprobe_g"

// maxKept bounds what a Converter remembers of each sort.
const maxKept = 1 << 16

// Converter makes hits of those of a session. The zero value is ready; it is not
// safe for concurrent use.
type Converter struct {
	programs map[*fetch.Program]*program
	places   map[placeKey]*Place
	threads  map[[2]int]*Thread
	stacks   map[string]*Stack
	last     *program
	lastAt   *Thread
	vals     []fetch.Value
	out      Hit
	texts    []byte
	key      []byte
}

type placeKey struct {
	space   *symbols.Space
	addr    symbols.Addr
	renamed uint64 // Space.Renamed: other code may be there since
}

// program is what the hits of one place have in common.
type program struct {
	of    *fetch.Program
	event *Event
	place *Place // of the last hit, in the process of space
	space *symbols.Space
	types []fetch.Type
	timed bool // the last value is the entry's time
	based bool // or the stack pointer
}

// namer names addresses of a process.
type namer struct{ space *symbols.Space }

// SymbolAt implements fetch.Symbolizer.
func (n namer) SymbolAt(a symbols.Addr) (name string, off, size uint64, ok bool) {
	if n.space == nil {
		return "", 0, 0, false
	}
	name, off, size, _, ok = n.space.NameAt(a, true)
	return name, off, size, ok
}

// Convert makes a hit, which is valid until the next one is made.
func (c *Converter) Convert(h *results.Hit) (*Hit, error) {
	p := c.last
	if p == nil || p.of != h.Program {
		p = c.program(h)
	}
	vals, err := h.Program.Decode(h.Data, c.vals[:0])
	if err != nil {
		return nil, err
	}
	c.vals = vals
	o := &c.out
	if p.place == nil || p.space != h.Space || p.place.Addr != uint64(h.IP) {
		p.place, p.space = c.place(h.Space, h.IP, h.Func), h.Space
	}
	*o = Hit{
		Event: p.event, Thread: c.thread(h), CPU: h.CPU, Time: h.Time,
		Place: p.place, Values: o.Values[:0],
	}
	if p.event.Return {
		o.Caller = c.place(h.Space, h.RetIP, "")
	}
	if h.Stack != nil {
		o.Stack = c.stack(h)
	}
	c.fill(o, p, vals, namer{h.Space})
	return o, nil
}

// fill gives a hit what its record says.
func (c *Converter) fill(o *Hit, p *program, vals []fetch.Value, sym fetch.Symbolizer) {
	if p.timed || p.based {
		g, last := &vals[len(vals)-2], &vals[len(vals)-1]
		vals = vals[:len(vals)-2]
		if p.event.Go && !g.Fault {
			o.G = g.Int
		}
		switch {
		case last.Fault:
		case p.timed:
			o.Entry = min(last.Int, o.Time)
		default:
			o.SP = last.Int
		}
	}
	c.texts = c.texts[:0]
	for i := range vals {
		o.Values = append(o.Values, c.value(p, i, &vals[i], sym))
	}
}

func (c *Converter) program(h *results.Hit) *program {
	if p := c.programs[h.Program]; p != nil {
		c.last = p
		return p
	}
	if c.programs == nil || len(c.programs) >= maxKept {
		c.programs = map[*fetch.Program]*program{} // probes come and go while a trace runs
	}
	p := programOf(eventOf(h.Event, h.Space, h.IP), h.Program)
	p.event = c.same(p.event)
	c.programs[h.Program] = p
	c.last = p
	return p
}

// eventOf is an event as it is at a place.
func eventOf(ev *results.Event, space *symbols.Space, at symbols.Addr) *Event {
	e := &Event{Group: ev.Group, Name: ev.Name, Return: ev.Return}
	if _, off, _, ok := (namer{space}).SymbolAt(at); ok && off == 0 && !e.Return {
		e.Entry = true
	}
	e.Static = ev.Def != nil && ev.Def.Place.Kind == symbols.PlaceUSDT
	if space != nil {
		if m := space.ModuleAt(at); m != nil && m.File != nil {
			e.Go = m.File.IsGo()
		}
	}
	return e
}

// programOf is what the hits of an event have in common whose records a program decodes.
func programOf(e *Event, of *fetch.Program) *program {
	p := &program{of: of, event: e}
	fields, inGo := of.Fields(), e.Go
	e.Go = false
	if n := len(fields); n > 1 && fields[n-2].Name == goName {
		p.timed, p.based = e.Return && fields[n-1].Name == EntryName, !e.Return && fields[n-1].Name == StackName
		fields, e.Go = fields[:n-2], inGo
	}
	for _, f := range fields {
		p.types = append(p.types, f.Type)
		e.Fields = append(e.Fields, Field{Name: f.Name, Type: f.Type.String(), Kind: kindOf(f.Type)})
	}
	return p
}

// same gives an event of another place that is the same.
func (c *Converter) same(e *Event) *Event {
	for _, p := range c.programs {
		o := p.event
		if o.Group != e.Group || o.Name != e.Name || o.Return != e.Return || o.Entry != e.Entry || o.Go != e.Go || o.Static != e.Static || len(o.Fields) != len(e.Fields) {
			continue
		}
		equal := true
		for i := range o.Fields {
			equal = equal && o.Fields[i] == e.Fields[i]
		}
		if equal {
			return o
		}
	}
	return e
}

func kindOf(t fetch.Type) Kind {
	switch {
	case t.IsArray() || t.Layout != nil:
		return Shown
	case t.Base == fetch.Signed:
		return Signed
	case t.Base == fetch.Unsigned || t.BitWidth != 0:
		return Unsigned
	case t.Base == fetch.Hex:
		return Hex
	case t.Base == fetch.Float:
		return Float
	case t.Base == fetch.Container || t.Base == fetch.SymbolText:
		return Shown
	case t.IsText():
		return Text
	}
	return Shown
}

func (c *Converter) value(p *program, i int, v *fetch.Value, sym fetch.Symbolizer) Value {
	kind := p.event.Fields[i].Kind
	switch {
	case v.Fault:
		return Value{State: Fault}
	case v.Address || v.Invalid || v.None:
		kind = Shown
	}
	switch kind {
	case Unsigned, Signed, Hex:
		return Value{Int: v.Int}
	case Float:
		if p.types[i].Size == 4 {
			return Value{Float: float64(math.Float32frombits(uint32(v.Int)))}
		}
		return Value{Float: math.Float64frombits(v.Int)}
	case Text:
		state := Whole
		if v.Truncated {
			state = Cut
		}
		return Value{State: state, Text: v.Bytes[:min(len(v.Bytes), maxText)]}
	}
	start := len(c.texts)
	c.texts = fetch.AppendText(c.texts, p.types[i], *v, sym)
	text := c.texts[start:len(c.texts):len(c.texts)]
	return Value{State: Printed, Text: text[:min(len(text), maxText)]}
}

func (c *Converter) place(space *symbols.Space, a symbols.Addr, name string) *Place {
	key := placeKey{space: space, addr: a}
	if space != nil {
		key.renamed = space.Renamed()
	}
	if p := c.places[key]; p != nil && (name == "" || p.Off == 0) {
		return p
	}
	if c.places == nil || len(c.places) >= maxKept {
		c.places = map[placeKey]*Place{}
	}
	p := placeAt(space, a)
	if p.Name == "" && name != "" {
		p.Name = cut(name)
	}
	c.places[key] = p
	return p
}

// placeAt names an address of a process; space is nil where none is known.
func placeAt(space *symbols.Space, a symbols.Addr) *Place {
	p := &Place{Addr: uint64(a)}
	if space == nil {
		return p
	}
	n, off, size, m, ok := space.NameAt(a, true)
	if ok {
		p.Name, p.Off, p.Size = cut(n), off, size
	}
	if m != nil {
		p.Module = cut(m.Name)
	}
	return p
}

func cut(s string) string { return s[:min(len(s), maxText)] }

func (c *Converter) thread(h *results.Hit) *Thread {
	if t := c.lastAt; t != nil && t.TID == h.TID && t.PID == h.PID && t.Comm == h.Comm {
		return t
	}
	key := [2]int{h.PID, h.TID}
	if t := c.threads[key]; t != nil && t.Comm == h.Comm {
		c.lastAt = t
		return t
	}
	if c.threads == nil || len(c.threads) >= maxKept {
		c.threads = map[[2]int]*Thread{}
	}
	t := &Thread{PID: h.PID, TID: h.TID, Comm: h.Comm}
	c.threads[key] = t
	c.lastAt = t
	return t
}

func (c *Converter) stack(h *results.Hit) *Stack {
	c.key = append(c.key[:0], byte(h.StackEnd))
	c.key = binary.LittleEndian.AppendUint32(c.key, uint32(h.PID))
	if h.Space != nil {
		c.key = binary.LittleEndian.AppendUint64(c.key, h.Space.Renamed())
	}
	for _, f := range h.Stack {
		c.key = binary.LittleEndian.AppendUint64(c.key, uint64(f.Addr))
	}
	if s := c.stacks[string(c.key)]; s != nil {
		return s
	}
	if c.stacks == nil || len(c.stacks) >= maxKept {
		c.stacks = map[string]*Stack{}
	}
	s := &Stack{}
	for i := range h.Stack[:min(len(h.Stack), maxFrames)] {
		s.Frames = append(s.Frames, c.place(h.Space, h.Stack[i].Addr, ""))
	}
	if h.StackEnd != symbols.StackWhole {
		s.End = h.StackEnd.String()
	}
	c.stacks[string(c.key)] = s
	return s
}
