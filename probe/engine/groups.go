package engine

import (
	"kprobe/probe/planner"
	"kprobe/probe/ring"
)

// Which changes of the text go together
//
// Detached probes are taken out event by event by kprobes that know only the memory file. So before a
// process is left, the sites in its journal are grouped: those of one group are restored together, once no
// probe of the group is there any more (area/prune.go). Two patches are in one group if a probe needs
// both. Patches share no byte of text (plan, own.go), so different groups can be restored in any order.
// Probes of kprobe's own, beside system calls, have group 0, together with every patch that they share
// with other probes: they are needed as long as any probe is there.

// ownGroup is the group of what is restored only with everything else.
const ownGroup = 0

// groupsOf is the set of groups that turned out to be one: by number, the group to which each was joined.
type groupsOf []uint32

// find returns the number that a group has now.
func (g groupsOf) find(n uint32) uint32 {
	for g[n] != n {
		g[n] = g[g[n]]
		n = g[n]
	}
	return n
}

// join makes two groups one, with the smaller number.
func (g groupsOf) join(a, b uint32) {
	a, b = g.find(a), g.find(b)
	g[max(a, b)] = min(a, b)
}

// writeGroups writes to the memory file which group each site and each probe belongs to.
func (tg *Target) writeGroups() {
	t := tg.Feed
	t.mu.RLock()
	defer t.mu.RUnlock()
	groups := make(groupsOf, len(t.Ids)+1)
	for i := range groups {
		groups[i] = uint32(i)
	}
	of := func(p *Placed) uint32 {
		if p.Rarely().Birth != nil || p.Id == 0 || int(p.Id) >= len(groups) {
			return ownGroup
		}
		return p.Id
	}
	first := func(q *Patch) uint32 {
		if len(q.Wants) == 0 {
			return ownGroup
		}
		return of(PlacedOf(q.Wants[0]))
	}
	for _, q := range tg.Patches.List {
		if q.Armed {
			for _, w := range q.Wants {
				groups.join(first(q), of(PlacedOf(w)))
			}
		}
	}
	for p := range tg.Placed {
		for w := range p.patched {
			tg.covering(w, func(q *Patch) { groups.join(of(p), first(q)) })
		}
	}
	f := t.File
	for _, q := range tg.Patches.List {
		if !q.Armed {
			continue
		}
		n := groups.find(first(q))
		for x := q; x != nil; x = x.island {
			for entry := range x.entries {
				tg.Area.Journal.Group(entry, n)
			}
		}
	}
	for _, p := range t.Ids {
		if p != nil && !p.removed {
			at := f.Layout.Probe(p.Id) + ring.GroupOff
			f.Store32(at, groups.find(of(p)))
			t.descriptors.Touched(at, 4)
		}
	}
}

// covering calls found for each armed patch that has a byte of a request's instruction.
func (tg *Target) covering(w planner.Request, found func(*Patch)) {
	at := w.Site.Addr
	n := 1
	if w.Place != nil {
		n = int(w.Inst().Len)
	}
	// If the instruction is an endbr64, the jump begins at the byte behind it.
	for _, q := range tg.Patches.pages.Near(uint64(at), uint64(at)+uint64(n)+1) {
		if q.Armed && (q.covers(at, n) || q.Plan.Serves(uint64(at))) {
			found(q)
		}
	}
}
