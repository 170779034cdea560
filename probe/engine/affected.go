package engine

import (
	"cmp"
	"slices"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/planner"
	"kprobe/symbols"
)

// affected finds the patches that give way for a change: jumps that cover places of the change,
// jumps and breakpoints of the probes that are removed or lost, breakpoints near the removed ones,
// and all other patches of the probes found so.
func (tg *Target) affected(c *changeset) *outgoing {
	f := tg.newFinder()
	for p := range c.drop {
		f.probe(p)
		for w := range p.wants {
			for a := w.Site.Addr - nearby; a <= w.Site.Addr+nearby && len(tg.Sites) > 0; a++ {
				f.site(tg.Sites[a])
			}
		}
	}
	for p := range tg.lost {
		if tg.Placed[p] {
			f.probe(p)
		}
	}
	for _, w := range c.add {
		f.place(w.Place)
		if readsFlags(w) {
			f.before(w.Site.Addr)
		}
	}
	for p := range f.seen {
		if !c.drop[p] {
			f.out.stay[p] = true
		}
	}
	return f.out
}

// finder collects the patches and probes that a change touches.
type finder struct {
	tg   *Target
	out  *outgoing
	seen map[*Placed]bool
}

// newFinder returns an empty finder.
func (tg *Target) newFinder() *finder {
	return &finder{tg: tg, out: newOutgoing(), seen: map[*Placed]bool{}}
}

// place adds the jumps that cover a place's instruction, and the breakpoint on it.
func (f *finder) place(w *assess.Place) {
	lo, behind := uint64(w.Site.Addr), uint64(w.Inst().Len)
	// If the instruction is an endbr64, the jump begins at the byte behind it.
	for _, p := range f.tg.Patches.pages.Near(lo, lo+behind+1) {
		if p.Armed && (p.covers(w.Site.Addr, int(behind)) || p.Plan.Serves(lo)) {
			f.patch(p)
		}
	}
	f.site(f.tg.Sites[w.Site.Addr])
}

// before adds the jumps from whose places a function may run up to an address with its caller's flags: if one is at
// the function's entry, its detour may not keep them (planner.Ground.FlagsRead). The address need not lie in the
// function by its name: symbols may lie in one another.
func (f *finder) before(at symbols.Addr) {
	lo, hi := uint64(at)-planner.FlagsWay, uint64(at)+1
	for _, p := range f.tg.Patches.pages.Near(lo, hi) {
		if p.Armed && p.Plan.ServesIn(lo, hi) {
			f.patch(p)
		}
	}
}

// readsFlags reports whether the program's status flags matter to a probe. A handler may read them.
func readsFlags(w planner.Request) bool {
	return w.P.Rarely().Handlers != "" || w.P.Program.Reads(fetch.RegFlags)
}

func (f *finder) probe(p *Placed) {
	if f.seen[p] || p.target != f.tg {
		return
	}
	f.seen[p] = true
	for w := range p.patched {
		f.place(w.Place)
	}
}

func (f *finder) patch(p *Patch) {
	if f.out.hasPatch(p) {
		return
	}
	f.out.addPatch(p)
	for _, x := range p.Probes() {
		f.probe(x)
	}
}

// site adds a breakpoint and the probes on it. A breakpoint that kprobe itself needs (Site.own)
// stays in the text; only its probes are added.
func (f *finder) site(st *Site) {
	if st == nil || !st.Armed || f.out.hasSite(st) {
		return
	}
	if !st.own() {
		f.out.addSite(st)
	}
	for _, list := range [][]*Placed{st.probes, st.returns, st.exits} {
		for _, p := range list {
			f.probe(p)
		}
	}
}

// requests lists what is to be armed: the places of outgoing patches whose probes stay, then the
// new places.
func (c *changeset) requests(tg *Target) []planner.Request {
	if stay := c.out.wants(tg); len(stay) > 0 {
		return append(stay, c.add...)
	}
	return slices.Clip(c.add)
}

// wants lists what is to be armed anew: all places of the probes that stay, except places whose
// breakpoints stay. The order is that in which the probes were added.
func (o *outgoing) wants(tg *Target) []planner.Request {
	var out []planner.Request
	for p := range o.stay {
		for w := range p.wants {
			if !tg.hangsOn(tg.Sites[w.Site.Addr], p, o) {
				out = append(out, w)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b planner.Request) int { return cmp.Compare(PlacedOf(a).seq, PlacedOf(b).seq) })
	return out
}

// hangsOn reports whether a site's breakpoint stays in the text and serves the probe.
func (tg *Target) hangsOn(st *Site, p *Placed, o *outgoing) bool {
	return st != nil && !o.hasSite(st) && st.Armed &&
		(slices.Contains(st.probes, p) || slices.Contains(st.returns, p) || slices.Contains(st.exits, p))
}
