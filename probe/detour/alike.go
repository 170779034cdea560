package detour

import (
	"cmp"
	"slices"

	"kprobe/probe/asm"
)

// How the detours of thousands of places stay small: the data that says how to undo them is the
// same for nearly all of them, and is kept once.

// undoing is the data by which a detour is undone: its frame at each offset, and its pushes.
type undoing struct {
	marks []mark
	steps []step
}

// Scratch is what successive builds share: memory, and data of earlier detours that later ones
// may equal. The zero Scratch is ready to use. It is not safe for concurrent use.
type Scratch struct {
	marks []mark
	steps []step
	alike map[uint64]*undoing
	code  asm.Code
}

const (
	// mostAlike bounds how many detours are kept for comparison.
	mostAlike = 1 << 12
	// usualMarks is how many marks most detours have at most.
	usualMarks = 32
)

// take returns room for marks and steps. A build that fails may keep it.
func (s *Scratch) take() ([]mark, []step) {
	if s == nil || s.marks == nil {
		return make([]mark, 0, usualMarks), nil
	}
	m, t := s.marks[:0], s.steps[:0]
	s.marks, s.steps = nil, nil
	return m, t
}

// like is asm.Like in the memory of the last such code.
func (s *Scratch) like(base uint64, near asm.Near) *asm.Code {
	if s == nil {
		return asm.Like(base, near)
	}
	s.code.Reset(base, near)
	return &s.code
}

// undoing returns how the finished code is undone: the data of an earlier detour if that is
// equal. Then the frame's own goes back to the Scratch.
func (f *frame) undoing() *undoing {
	u := &undoing{f.marks, f.steps}
	f.marks, f.steps = nil, nil
	slices.SortStableFunc(u.marks, func(a, b mark) int { return cmp.Compare(a.off, b.off) })
	s := f.scratch
	if s == nil {
		return u
	}
	like := u.looks()
	out := s.alike[like]
	if out == nil || !out.equal(u) {
		if out = (&undoing{slices.Clone(u.marks), slices.Clone(u.steps)}); len(s.alike) < mostAlike {
			if s.alike == nil {
				s.alike = map[uint64]*undoing{}
			}
			s.alike[like] = out
		}
	}
	clear(u.marks) // drop the slices that they refer to
	s.marks, s.steps = u.marks, u.steps
	return out
}

// looks is a hash of the data.
func (u *undoing) looks() uint64 {
	h := uint64(len(u.marks))<<32 ^ uint64(len(u.steps))
	mix := func(v uint64) { h = (h ^ v) * golden }
	for i := range u.marks {
		m := &u.marks[i]
		mix(uint64(uint32(m.off))<<32 | uint64(uint32(m.depth)))
		mix(uint64(m.writing)<<48 | uint64(m.flags)<<40 | uint64(m.keep)<<32 | uint64(uint32(m.taken)))
		mix(uint64(len(m.saved)))
	}
	for _, s := range u.steps {
		mix(uint64(uint32(s.off))<<32 | uint64(uint32(s.depth)))
	}
	return h
}

func (u *undoing) equal(o *undoing) bool {
	return slices.Equal(u.steps, o.steps) && slices.EqualFunc(u.marks, o.marks, func(a, b mark) bool {
		return slices.Equal(a.saved, b.saved) && a.same(&b)
	})
}
