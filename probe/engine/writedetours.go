package engine

import (
	"cmp"
	"fmt"
	"slices"

	"kprobe/probe/plan"
	"kprobe/symbols"
)

const (
	// detourGap is how many unused bytes between two detours are overwritten to write both at once.
	detourGap = 64
	// detoursMost bounds what is written at once, in bytes.
	detoursMost = 64 << 10
)

// writeDetours writes the detours of patches, neighbours in one write. fresh is memory that holds
// nothing but these detours: elsewhere each is written by itself, as others may lie beside it.
func (tg *Target) writeDetours(patches []*Patch, fresh []plan.Range) error {
	list := laidOut(patches)
	var text []byte
	for len(list) > 0 {
		n := 1
		for n < len(list) && beside(list[:n+1], fresh) {
			n++
		}
		text = text[:0]
		base := list[0].from
		for _, d := range list[:n] {
			if err := tg.answer(); err != nil {
				return err
			}
			text = tg.appendDetour(text, base, d.of)
		}
		if err := tg.Proc.WriteMemory(text, base); err != nil {
			return fmt.Errorf("write a detour: %w", err)
		}
		list = list[n:]
	}
	return nil
}

// laid is the memory of a patch's detour.
type laid struct {
	from, end symbols.Addr
	of        *Patch
}

// laidOut lists the detours of patches and of their islands, in order of address.
func laidOut(patches []*Patch) []laid {
	list := make([]laid, 0, len(patches))
	for _, p := range patches {
		for q := p; q != nil; q = q.island {
			if n := len(q.Stages); n > 0 {
				last := &q.Stages[n-1]
				list = append(list, laid{q.Stages[0].Base, last.Base + symbols.Addr(last.Size), q})
			}
		}
	}
	slices.SortFunc(list, func(a, b laid) int { return cmp.Compare(a.from, b.from) })
	return list
}

// beside reports whether the last of list may be written together with those before it, which lie
// beside each other.
func beside(list []laid, fresh []plan.Range) bool {
	lo, before := uint64(list[0].from), list[len(list)-2].end
	next := list[len(list)-1]
	from, end := next.from, uint64(next.end)
	if from < before || from-before > detourGap || end-lo > detoursMost {
		return false
	}
	i, found := slices.BinarySearchFunc(fresh, lo, func(r plan.Range, a uint64) int { return cmp.Compare(r.Lo, a) })
	if !found {
		i--
	}
	return i >= 0 && end <= fresh[i].Hi
}

// appendDetour appends a patch's detour to text, which begins at base. Breakpoints fill the room
// before it and between its stages.
func (tg *Target) appendDetour(text []byte, base symbols.Addr, p *Patch) []byte {
	for i := range p.Stages {
		s := &p.Stages[i]
		for base+symbols.Addr(len(text)) < s.Base {
			text = append(text, breakpoint)
		}
		text = append(text, p.Text(i)...)
		if s.Trampolines() != nil {
			tg.Feed.Trampolines.Hide(s.Base, s.Base+symbols.Addr(s.Size))
		}
	}
	p.Written()
	return text
}
