package planner

import (
	"cmp"
	"slices"
	"sort"

	"kprobe/probe/assess"
	"kprobe/probe/plan"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// Which patch owns which bytes: a jump may need bytes of its neighbours, and each byte of the text may
// belong to one patch only.

// dropConflicting gives up jumps that need bytes at which a probe of another function stands. That probe
// will change them, whatever its tactic. Conflicts within a function don't occur: probe/plan avoids
// them.
func (o *planner) dropConflicting(patches []*Patch, ws, rest []Request) ([]*Patch, []Request) {
	all := make([]symbols.Addr, 0, len(ws))
	for _, w := range o.patched(ws) {
		all = append(all, w.Site.Addr)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	kept := patches[:0]
	for _, p := range patches {
		clash := false
		for r := range p.Plan.Owns() {
			i := sort.Search(len(all), func(i int) bool { return uint64(all[i]) >= r.Lo })
			for ; i < len(all) && uint64(all[i]) < r.Hi; i++ {
				clash = clash || !p.Plan.Serves(uint64(all[i]))
			}
		}
		if !clash {
			kept = append(kept, p)
			continue
		}
		rest = o.giveUp(p, rest, "another probe stands where its jump would be")
	}
	return kept, rest
}

// taken lists the bytes near a function that a new jump may not have: those of armed patches, of patches
// that were planned before, of other probes' places, and of the program's restartable sequences.
// The list is valid until the next call.
func (o *planner) taken(f *assess.Function, m *symbols.Module, planned PageIndex[*Patch]) []plan.Range {
	lo, hi := f.Start-256, f.Start+symbols.Addr(f.Size)+256
	out := append(o.near[:0], o.ground.Stands.Taken(lo, hi)...)
	// Places of probes that are not planned yet. Each entry needs room for a jump.
	own := plan.Range{Lo: uint64(f.Start), Hi: uint64(f.Start) + uint64(f.Size)}
	i := sort.Search(len(o.wanted), func(i int) bool { return o.wanted[i].Lo >= uint64(lo) })
	for ; i < len(o.wanted) && o.wanted[i].Lo < uint64(hi); i++ {
		if r := o.wanted[i]; r.Lo < own.Lo || r.Lo >= own.Hi {
			out = append(out, r)
		}
	}
	// The program's own restartable sequences.
	out = append(out, survey.Sequences(m, f.Fn)...)
	for _, p := range planned.Near(uint64(lo), uint64(hi)) {
		if p.Plan.Owned(uint64(lo), uint64(hi)) {
			out = slices.AppendSeq(out, p.Plan.Owns())
		}
	}
	slices.SortFunc(out, func(a, b plan.Range) int { return cmp.Compare(a.Lo, b.Lo) })
	o.near = out
	return joined(out)
}

// joined joins ranges that overlap or lie beside each other, in place. They are in order of their start.
func joined(list []plan.Range) []plan.Range {
	out := list[:0]
	for _, r := range list {
		if n := len(out); n > 0 && r.Lo <= out[n-1].Hi {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// wantedBytes lists the bytes that the probes' places need, in order of address: at least the
// instruction, and room for a jump except at exits.
func wantedBytes(groups map[*assess.Function][]Request) []plan.Range {
	n := 0
	for _, ws := range groups {
		n += len(ws)
	}
	out := make([]plan.Range, 0, n)
	for f, ws := range groups {
		for _, w := range ws {
			r := plan.Range{Lo: uint64(w.Site.Addr), Hi: uint64(w.Site.Addr) + uint64(w.Inst().Len)}
			if w.Kind != Exit {
				r.Hi = max(r.Hi, min(r.Lo+plan.JumpLen, uint64(f.Start)+uint64(f.Size)))
			}
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b plan.Range) int { return cmp.Compare(a.Lo, b.Lo) })
	return out
}
