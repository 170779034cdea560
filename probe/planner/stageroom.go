package planner

import (
	"errors"

	"kprobe/probe/asm"
	"kprobe/probe/detour"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// How much room detours take
//
// A detour must lie where its jump can reach it, so its size is needed before its place is known. Each of
// its stages is built once to find the size. Stages of the same shape are built once for all.

// Room for copies of the displaced instructions with the jump back, in bytes.
const (
	copyRoom    = 48  // enough for nearly all
	maxCopyRoom = 160 // enough for all
)

// stageRoom is the room in bytes that a stage may need besides its code: for the jump to the next stage,
// and for alignment.
const stageRoom = 24

// sketchTail is the size of the copies in a stage that is built only to find its size.
const sketchTail = 32

// room is the largest size in bytes of the detour for the requests at an address.
func (o *planner) room(at uint64, ws []Request) (int, error) {
	size := copyRoom
	if o.generous {
		size = maxCopyRoom
	}
	tail := func(c *asm.Code) error { c.Nop(sketchTail); return nil }
	base := (at + 1<<20) &^ 15
	alone := [1][]Request{ws}
	parts := alone[:]
	if !oneStage(ws) {
		parts, _ = o.apart(ws)
	}
	for _, part := range parts {
		like, simple := o.shapeOf(part)
		if known, ok := o.shapes[like]; simple && ok {
			size += known.room
			o.sketches[keyOf(part)] = known.sketch
			continue
		}
		st, sketch := &Stage{Base: symbols.Addr(base)}, &detour.Sketch{}
		o.params.Sketch = sketch
		text, err := o.probes(st, part, tail)
		if err != nil {
			return 0, err
		}
		if len(part) > 0 && o.sketches != nil {
			o.sketches[keyOf(part)] = sketch
		}
		n := (len(text)-sketchTail-sketch.Shorter()+15)&^15 + stageRoom
		size += n
		if simple {
			o.shapes[like] = sized{n, sketch}
		}
	}
	return size, nil
}

// shape is everything that the size of a stage whose probes only count depends on. The code of two stages
// with the same shape differs only in addresses and numbers.
type shape struct {
	kind    Kind
	passing detour.Passing
	always  bool
	cond    byte
	pop     uint16
	joins   bool
	notes   int
	alone   int  // hits by themselves
	dead    bool // the flags
	table   uint64
}

// sized is the size of a stage, and the sketch by which it is built with this size.
type sized struct {
	room   int
	sketch *detour.Sketch
}

// shapeOf is the shape of a stage. ok is false if the stage is not of a frequent kind, and has no shape.
func (o *planner) shapeOf(part []Request) (s shape, ok bool) {
	if len(part) == 0 || o.sketches == nil {
		return s, false
	}
	w := part[len(part)-1]
	by := o.course(w.P).ByExits
	common, anywhere := by != nil && by.Calls().Common, true
	for _, x := range part {
		if !x.P.Counts || x.P.Rarely().Birth != nil || x.P.Rarely().Landing != nil || x.P.GoABI || x.Site.Module.File.IsGo() || len(x.P.Program.Entry) > 0 {
			return s, false
		}
		by := o.course(x.P).ByExits
		anywhere = anywhere && by != nil && by.Anywhere
	}
	switch s.kind = w.Kind; {
	case w.Kind == Entry && len(part) == 1:
		s.dead = o.flagsDead(part)
		return s, true
	case w.Alone:
		return s, len(part) == 1
	case !common || w.Open() != nil:
	case w.Kind == Return && len(part) == 1:
		s.dead, s.table, s.joins = o.flagsDead(part), by.Calls().Addr, w.Twins&TwinBefore != 0 || by.StartsOver
		return s, true
	case w.Kind == Exit && w.Passing != detour.NotPassing:
		s.dead = w.Passing == detour.Arrives && o.flagsDead(part)
		s.table, s.passing, s.always = by.Calls().Addr, w.Passing, !w.Conditional
		for _, x := range part {
			if x.Notes {
				s.notes++
			}
		}
		s.joins = s.notes > 0 && (s.notes < len(part) || o.takes(part))
		if w.Conditional {
			s.cond = w.Inst().Opcode & 15
		}
		return s, true
	case w.Kind == Exit && anywhere:
		s.table, s.pop, s.alone = by.Calls().Addr, w.Pop, ownHits(part)
		return s, true
	}
	return s, false
}

var errRoom = errors.New("its detour does not fit the room that was found for it")

// trim frees the room that was reserved for the patch's detours and that they didn't need.
func (p *Patch) trim(s *plan.Space) {
	for ; p != nil && len(p.Stages) > 0; p = p.Island {
		last := p.Stages[len(p.Stages)-1]
		end := (uint64(last.Base) + uint64(last.Size) + 15) &^ 15
		if room := uint32(end - p.Plan.Detour); room < p.Plan.Room {
			s.Release(end, int(p.Plan.Room-room))
			p.Plan.Room = room
		}
	}
}
