package probe

import (
	"context"

	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// What is given back of code that nobody is in, and where new code can lie

// giveBack frees the memory of code that nobody is in.
func (tg *target) giveBack(ctx context.Context, list []*retired) {
	gone := map[*patch]bool{}
	touched := map[*memory.Arena]bool{}
	for _, r := range list {
		for _, st := range r.sites {
			if tg.bySlot[st.slot] == st {
				delete(tg.bySlot, st.slot)
				tg.leaveCopy(st.moved, st.slot)
				tg.area.Code.GiveBack(st.slot)
			}
		}
		for _, p := range r.patches {
			for q := p; q != nil; q = q.island {
				gone[q] = true
				for _, s := range q.stages {
					touched[tg.area.Code.Holds(s.base)] = true
				}
			}
		}
	}
	if len(gone) == 0 {
		return
	}
	tg.forgetPatches(gone)
	for _, st := range tg.patches.stages {
		delete(touched, tg.area.Code.Holds(st.base))
	}
	for p := range touched {
		if p == nil || !p.Detours {
			continue
		}
		if err := tg.area.Code.Unmap(ctx, p); err != nil {
			tg.area.Code.Keep(p)
			tg.s.logf("memory of detours stays mapped: %v", err)
			continue
		}
		tg.area.Code.Drop(p)
	}
	tg.freePools(ctx)
}

// forgetPatches drops patches of which nothing is in use any more.
func (tg *target) forgetPatches(gone map[*patch]bool) {
	ps := tg.patches
	list := ps.list[:0]
	for _, p := range ps.list {
		if !gone[p] {
			list = append(list, p)
		}
	}
	clear(ps.list[len(list):])
	ps.list = list
	stages := ps.stages[:0]
	for _, s := range ps.stages {
		if !gone[ps.owner[s]] {
			stages = append(stages, s)
			continue
		}
		delete(ps.owner, s)
		tg.leaveCopy(s.moved(), s.copyAt)
		if s.detour == nil {
			continue
		}
		if a := s.detour.NoRoom; a != 0 {
			delete(ps.noRoom, symbols.Addr(a))
			tg.area.Table.Remove(a)
		}
		for _, f := range s.detour.Faults {
			delete(ps.faults, symbols.Addr(f.At))
			tg.area.Table.Remove(detour.FaultKey(f.At))
		}
		tg.forgetDetour(s)
		for _, a := range s.detour.Asks {
			delete(ps.asks, symbols.Addr(a.At))
		}
	}
	clear(ps.stages[len(stages):])
	ps.stages = stages
	for p := range gone {
		ps.pages.drop(p)
	}
}

// codeSpace is where detours can lie: what is mapped for them and not in use,
// and free addresses.
func (tg *target) codeSpace(maps []symbols.Mapping) *plan.Space {
	space := plan.NewSpace(memory.FreeRanges(maps))
	used := map[*memory.Arena]uint64{}
	for _, s := range tg.patches.stages {
		if p := tg.area.Code.Holds(s.base); p != nil {
			used[p] = max(used[p], uint64(s.base)+uint64(s.size))
		}
	}
	for _, p := range tg.area.Code.All() {
		if p.Detours {
			end := max(used[p], uint64(p.Start))
			space.Mapped(plan.Range{Lo: uint64(p.Start), Hi: uint64(p.End())}, (end+15)&^15)
		}
	}
	return space
}
