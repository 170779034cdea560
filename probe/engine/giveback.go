package engine

import (
	"context"
	"slices"
	"sort"

	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// How the memory of removed code is freed, and where new code can lie

// giveBack frees the memory of vacated code.
func (tg *Target) giveBack(ctx context.Context, list []*retired) {
	gone := map[*Patch]bool{}
	touched := map[*memory.Arena]bool{}
	for _, r := range list {
		for _, st := range r.sites {
			if tg.BySlot[st.slot] == st {
				delete(tg.BySlot, st.slot)
				forgetCopy(tg.Area.Table, st.moved, st.slot)
				tg.Area.Code.GiveBack(st.slot)
			}
		}
		for _, p := range r.patches {
			for q := p; q != nil; q = q.island {
				gone[q] = true
				for i := range q.Stages {
					touched[tg.Area.Code.Holds(q.Stages[i].Base)] = true
				}
			}
		}
	}
	if len(gone) == 0 {
		return
	}
	tg.forgetPatches(gone)
	for _, st := range tg.Patches.Stages {
		delete(touched, tg.Area.Code.Holds(st.Base))
	}
	for p := range touched {
		if p == nil || !p.Detours {
			continue
		}
		if err := tg.Area.Code.Unmap(ctx, p); err != nil {
			tg.Area.Code.Keep(p)
			tg.Engine.Logf("memory of detours stays mapped: %v", err)
			continue
		}
		tg.Area.Code.Drop(p)
	}
	tg.freePools(ctx)
}

// forgetPatches removes vacated patches from the session, and their entries from the fallback
// handler's table.
func (tg *Target) forgetPatches(gone map[*Patch]bool) {
	for _, s := range tg.Patches.forget(gone) {
		forgetCopy(tg.Area.Table, s.Moved(), s.CopyAt())
		if !s.Probed() {
			continue
		}
		d := s.Detour()
		if a := d.NoRoom(); a != 0 {
			tg.Area.Table.Remove(a)
		}
		for _, f := range d.Faults() {
			tg.Area.Table.Remove(detour.FaultKey(f.At))
		}
		s.forgetDetour(tg.Area.Table)
	}
}

// forget removes patches and returns their stages.
func (ps *patches) forget(gone map[*Patch]bool) (out []stage) {
	ps.List = slices.DeleteFunc(ps.List, func(p *Patch) bool { return gone[p] })
	stages := ps.Stages[:0]
	for _, s := range ps.Stages {
		if !gone[s.patch] {
			stages = append(stages, s)
			continue
		}
		if out = append(out, s); !s.Probed() {
			continue
		}
		d := s.Detour()
		delete(ps.noRoom, symbols.Addr(d.NoRoom()))
		for _, f := range d.Faults() {
			delete(ps.faults, symbols.Addr(f.At))
		}
		for _, a := range d.Asks() {
			delete(ps.asks, symbols.Addr(a.At))
		}
	}
	clear(ps.Stages[len(stages):])
	ps.Stages, ps.taken = stages, memoryOf(stages)
	ps.outlive = slices.DeleteFunc(ps.outlive, func(s stage) bool { return gone[s.patch] })
	for p := range gone {
		ps.pages.Drop(p)
	}
	return out
}

// memoryOf lists the memory of stages, which are in order, adjacent ranges joined. The bytes up to the
// next multiple of 16 belong to a stage, too.
func memoryOf(stages []stage) []plan.Range {
	var out []plan.Range
	for _, s := range stages {
		end := uint64(s.Base) + uint64(s.Size)
		out = appendJoined(out, plan.Range{Lo: uint64(s.Base), Hi: (end + 15) &^ 15})
	}
	return out
}

// join merges two lists of ranges that are in order, and joins adjacent ranges.
func join(a, b []plan.Range) []plan.Range {
	if len(a) == 0 || len(b) == 0 {
		return append(a, b...)
	}
	out := make([]plan.Range, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].Lo > b[0].Lo {
			a, b = b, a
		}
		out, a = appendJoined(out, a[0]), a[1:]
	}
	for _, r := range a {
		out = appendJoined(out, r)
	}
	for _, r := range b {
		out = appendJoined(out, r)
	}
	return slices.Clip(out)
}

// appendJoined adds a range to a list of ranges, none of which begins above it.
func appendJoined(list []plan.Range, r plan.Range) []plan.Range {
	if n := len(list); n > 0 && list[n-1].Hi >= r.Lo {
		list[n-1].Hi = max(list[n-1].Hi, r.Hi)
		return list
	}
	return append(list, r)
}

// codeSpace is where new detours can lie: unused memory in arenas for detours, and free addresses.
// What was freed between detours is unused memory, too: the address of a jump whose displacement has
// old bytes may have few other places.
func (tg *Target) codeSpace(maps []symbols.Mapping) *plan.Space {
	space := plan.NewSpace(memory.FreeRanges(maps))
	space.SetSpare(memory.SpareRanges(maps))
	for _, p := range tg.Area.Code.All() {
		if p.Detours {
			r := plan.Range{Lo: uint64(p.Start), Hi: uint64(p.End())}
			space.Mapped(r, tg.Patches.takenIn(r))
		}
	}
	return space
}

// takenIn lists the memory of stages that has bytes in r.
func (ps *patches) takenIn(r plan.Range) []plan.Range {
	from := sort.Search(len(ps.taken), func(i int) bool { return ps.taken[i].Hi > r.Lo })
	to := sort.Search(len(ps.taken), func(i int) bool { return ps.taken[i].Lo >= r.Hi })
	return ps.taken[from:max(from, to)]
}
