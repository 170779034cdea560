package engine

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"kprobe/internal/untrusted"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// leftSites are the bytes of a process that belong to probes that were left in it: what they have changed, and what
// their jumps depend on, changed or not (plan.Packed.Owns). They are read at the first question, and kept.
type leftSites struct {
	looked bool
	pages  planner.PageIndex[*leftSite]
	code   []plan.Range // the memory that was mapped for them
}

// holds reports whether an address is in memory that was mapped for probes that were left.
func (s *leftSites) holds(a symbols.Addr) bool {
	return slices.ContainsFunc(s.code, func(r plan.Range) bool { return uint64(a) >= r.Lo && uint64(a) < r.Hi })
}

// leftSite is a change of the text by probes that were left.
type leftSite struct {
	ring.Site
	events []string // of the probes that need it, GROUP/EVENT, each once
}

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
		var code []plan.Range
		list, err := untrusted.Within(func() (list []*leftSite, err error) {
			list, code, err = sitesLeft(pid, m.Start)
			return list, err
		})
		if err != nil {
			continue // the mapping is no valid memory file
		}
		s.code = append(s.code, code...)
		for _, x := range list {
			if s.pages == nil {
				s.pages = planner.PageIndex[*leftSite]{}
			}
			s.pages.Add(x)
		}
	}
}

// sitesLeft lists the bytes that are changed by the detached probes of the memory file at base, and the memory that
// was mapped for them; none if they are not detached.
func sitesLeft(pid int, base symbols.Addr) (out []*leftSite, code []plan.Range, err error) {
	mem, err := memory.OpenProcess(pid)
	if err != nil {
		return nil, nil, err
	}
	defer mem.Close()
	file := memory.Window{Mem: mem, At: base}
	s, err := ring.ReadSnapshot(file, memory.PossibleCPUs())
	if err != nil || s.Header.Mode&ring.ModeDetached == 0 || s.Header.Base != uint64(base) {
		return nil, nil, err
	}
	events := map[uint32][]string{}
	at := map[uint64][]string{}
	for i := range s.Probes {
		p := &s.Probes[i]
		if !slices.Contains(events[p.Group], p.Name) && p.Group != ownGroup {
			events[p.Group] = append(events[p.Group], p.Name)
		}
		at[p.Addr] = append(at[p.Addr], p.Name)
	}
	sites, err := ring.ReadSites(file, &s.Header, s.Layout)
	for _, x := range sites {
		names := events[x.Group]
		if x.Group == ownGroup {
			names = at[x.Addr]
		}
		out = append(out, &leftSite{x, names})
	}
	maps, merr := ring.ReadMaps(file, &s.Header, s.Layout)
	for _, m := range maps {
		if m.Used > 0 {
			code = append(code, plan.Range{Lo: m.Addr, Hi: m.Addr + m.Size})
		}
	}
	return out, code, errors.Join(err, merr)
}

// why says what stands where probes were left, and what takes it away.
func (s *leftSites) why(pid int, lo, hi symbols.Addr) string {
	var events []string
	own, removed := false, false
	for _, x := range s.pages.Near(uint64(lo), uint64(hi)) {
		for r := range x.Owns() {
			if r.Lo >= uint64(hi) || uint64(lo) >= r.Hi {
				continue
			}
			own, removed = own || x.Group == ownGroup && len(x.events) == 0, removed || x.Group != ownGroup && len(x.events) == 0
			for _, e := range x.events {
				if !slices.Contains(events, e) {
					events = append(events, e)
				}
			}
			break
		}
	}
	switch {
	case own:
		return fmt.Sprintf("a jump is there that detached probes need, beside a system call: it goes with the last of them: kprobe del -p %d '*'", pid)
	case len(events) > mostNamed:
		return fmt.Sprintf("detached probes are there (%s and %d more events): kprobe list --sites -p %d shows them, kprobe del -p %[3]d takes them out", strings.Join(events[:mostNamed], ", "), len(events)-mostNamed, pid)
	case len(events) > 0:
		return fmt.Sprintf("detached probes are there: kprobe del -p %d %s takes them out", pid, strings.Join(events, " "))
	case removed:
		return fmt.Sprintf("the jump of a detached probe that was removed is there: a thread may still run in its code, or another process have a copy of it; try again, or kprobe del -p %d '*'", pid)
	}
	return ""
}

// mostNamed is how many events an error names.
const mostNamed = 4
