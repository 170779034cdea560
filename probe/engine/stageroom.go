package engine

import (
	"errors"

	"kprobe/probe/asm"
	"kprobe/probe/detour"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// How much room detours take
//
// A detour must lie where its jump can lead, so its size is asked for before it has its
// place: each of its stages is built once to learn that, or, of those that thousands are
// like, once for all.

// What copies may take, a window's instructions and the way back: nearly always,
// and whatever they are.
const (
	copyRoom    = 48
	maxCopyRoom = 160
)

// stageRoom is what a stage may take besides its code: the jump to the next
// one, and alignment.
const stageRoom = 24

// sketchTail is what copies take where a stage is built to know its size.
const sketchTail = 32

// room is how many bytes the detour of the probes at an address takes at most.
func (o *planner) room(at uint64, ws []PatchRequest) (int, error) {
	size := copyRoom
	if o.generous {
		size = maxCopyRoom
	}
	tail := func(c *asm.Code) error { c.Nop(sketchTail); return nil }
	base := (at + 1<<20) &^ 15
	for _, part := range o.apart(ws) {
		like, simple := o.shapeOf(part)
		if known, ok := o.shapes[like]; simple && ok {
			size += known.room
			o.sketches[keyOf(part)] = known.sketch
			continue
		}
		st := &stage{base: symbols.Addr(base), sketch: &detour.Sketch{}}
		text, err := o.probes(st, part, tail)
		if err != nil {
			return 0, err
		}
		if len(part) > 0 && o.sketches != nil {
			o.sketches[keyOf(part)] = st.sketch
		}
		n := (len(text)-sketchTail-st.sketch.Shorter()+15)&^15 + stageRoom
		size += n
		if simple {
			o.shapes[like] = sized{n, st.sketch}
		}
	}
	return size, nil
}

// shape is what the code of a stage whose probes only count depends on, besides
// addresses and numbers.
type shape struct {
	kind    wantKind
	passing detour.Passing
	always  bool
	cond    byte
	pop     uint16
	joins   bool
	notes   int
	table   uint64
}

// sized is how much room a stage takes, and how it is built so that it does.
type sized struct {
	room   int
	sketch *detour.Sketch
}

// shapeOf is the shape of a stage; ok is false for one that is none of those that
// thousands are like.
func (o *planner) shapeOf(part []PatchRequest) (s shape, ok bool) {
	if len(part) == 0 || o.sketches == nil {
		return s, false
	}
	w := part[len(part)-1]
	by := o.course(w.P).ByExits
	common, anywhere := by != nil && by.Calls.Common, true
	for _, x := range part {
		if !x.P.counts || x.P.birth != nil || x.P.goABI || x.Site.Module.File.IsGo() || len(x.P.prog.Entry) > 0 {
			return s, false
		}
		by := o.course(x.P).ByExits
		anywhere = anywhere && by != nil && by.anywhere
	}
	switch s.kind = w.Kind; {
	case w.Kind == requestEntry && len(part) == 1:
		return s, true
	case part[0].alone:
		return s, len(part) == 1
	case !common || w.open != nil:
	case w.Kind == requestReturn && len(part) == 1:
		s.table, s.joins = by.Calls.Addr, w.joins
		return s, true
	case w.Kind == WantExit && w.passing != detour.NotPassing:
		s.table, s.passing, s.always = by.Calls.Addr, w.passing, !w.conditional
		for _, x := range part {
			if x.notes {
				s.notes++
			}
		}
		s.joins = s.notes > 0 && s.notes < len(part)
		if w.conditional {
			s.cond = w.Inst.Opcode & 15
		}
		return s, true
	case w.Kind == WantExit && anywhere:
		s.table, s.pop = by.Calls.Addr, w.pop
		return s, true
	}
	return s, false
}

var errRoom = errors.New("its detour does not fit the room that was found for it")

// trim gives the room back that the patch's detours were found and didn't need.
func (p *Patch) trim(s *plan.Space) {
	for ; p != nil && len(p.Stages) > 0; p = p.island {
		last := p.Stages[len(p.Stages)-1]
		end := (uint64(last.base) + uint64(last.size) + 15) &^ 15
		if room := int(end - p.Plan.Detour); room < p.Plan.Room {
			s.Release(end, p.Plan.Room-room)
			p.Plan.Room = room
		}
	}
}
