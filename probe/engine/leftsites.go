package engine

import (
	"iter"

	"kprobe/internal/untrusted"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// leftSites are the bytes of a process that belong to probes that were left in it: what they have changed, and what
// their jumps depend on, changed or not (plan.Patch.Owns). They are read at the first question, and kept.
type leftSites struct {
	looked bool
	pages  planner.PageIndex[*leftSite]
}

// leftSite is a change of the text by probes that were left.
type leftSite struct{ ring.Site }

// Owns yields the ranges of text that belong to the change.
func (s *leftSite) Owns() iter.Seq[plan.Range] {
	return func(yield func(plan.Range) bool) {
		if yield(plan.Range{Lo: s.Addr, Hi: s.Addr + uint64(len(s.After))}) && s.Hi > s.Lo {
			yield(plan.Range{Lo: s.Lo, Hi: s.Hi})
		}
	}
}

// leftIn lists the bytes in [lo, hi) that belong to detached probes.
func (tg *Target) leftIn(lo, hi symbols.Addr) []plan.Range { return tg.left.in(tg.Proc.PID(), lo, hi) }

// in lists those that have a byte in [lo, hi).
func (s *leftSites) in(pid int, lo, hi symbols.Addr) (out []plan.Range) {
	if s.look(pid); len(s.pages) == 0 {
		return nil
	}
	for _, x := range s.pages.Near(uint64(lo), uint64(hi)) {
		for r := range x.Owns() {
			if r.Lo < uint64(hi) && uint64(lo) < r.Hi {
				out = append(out, r)
			}
		}
	}
	return out
}

func (s *leftSites) look(pid int) {
	if s.looked {
		return
	}
	s.looked = true
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		return
	}
	for _, m := range maps {
		if !memory.IsFile(pid, &m) {
			continue
		}
		list, err := untrusted.Within(func() ([]ring.Site, error) { return sitesLeft(pid, m.Start) })
		if err != nil {
			continue // the mapping is no valid memory file
		}
		for _, x := range list {
			if s.pages == nil {
				s.pages = planner.PageIndex[*leftSite]{}
			}
			s.pages.Add(&leftSite{x})
		}
	}
}

// sitesLeft lists the bytes that are changed by the detached probes of the memory file at base; none
// if its probes are not detached.
func sitesLeft(pid int, base symbols.Addr) ([]ring.Site, error) {
	mem, err := memory.OpenProcess(pid)
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	file := memory.Window{Mem: mem, At: base}
	s, err := ring.ReadSnapshot(file, memory.PossibleCPUs())
	if err != nil || s.Header.Mode&ring.ModeDetached == 0 || s.Header.Base != uint64(base) {
		return nil, err
	}
	return ring.ReadSites(file, &s.Header, s.Layout)
}
