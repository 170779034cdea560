package engine

import (
	"context"

	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// What is given back of code that nobody is in, and where new code can lie

// giveBack frees the memory of code that nobody is in.
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
				for _, s := range q.Stages {
					touched[tg.Area.Code.Holds(s.Base)] = true
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

// forgetPatches drops patches of which nothing is in use any more.
func (tg *Target) forgetPatches(gone map[*Patch]bool) {
	ps := tg.Patches
	list := ps.List[:0]
	for _, p := range ps.List {
		if !gone[p] {
			list = append(list, p)
		}
	}
	clear(ps.List[len(list):])
	ps.List = list
	stages := ps.Stages[:0]
	for _, s := range ps.Stages {
		if !gone[ps.owner[s]] {
			stages = append(stages, s)
			continue
		}
		delete(ps.owner, s)
		forgetCopy(tg.Area.Table, s.Moved(), s.CopyAt)
		if s.Detour == nil {
			continue
		}
		if a := s.Detour.NoRoom; a != 0 {
			delete(ps.noRoom, symbols.Addr(a))
			tg.Area.Table.Remove(a)
		}
		for _, f := range s.Detour.Faults {
			delete(ps.faults, symbols.Addr(f.At))
			tg.Area.Table.Remove(detour.FaultKey(f.At))
		}
		s.forgetDetour(tg.Area.Table)
		for _, a := range s.Detour.Asks {
			delete(ps.asks, symbols.Addr(a.At))
		}
	}
	clear(ps.Stages[len(stages):])
	ps.Stages = stages
	for p := range gone {
		ps.pages.Drop(p)
	}
}

// codeSpace is where detours can lie: what is mapped for them and not in use,
// and free addresses.
func (tg *Target) codeSpace(maps []symbols.Mapping) *plan.Space {
	space := plan.NewSpace(memory.FreeRanges(maps))
	used := map[*memory.Arena]uint64{}
	for _, s := range tg.Patches.Stages {
		if p := tg.Area.Code.Holds(s.Base); p != nil {
			used[p] = max(used[p], uint64(s.Base)+uint64(s.Size))
		}
	}
	for _, p := range tg.Area.Code.All() {
		if p.Detours {
			end := max(used[p], uint64(p.Start))
			space.Mapped(plan.Range{Lo: uint64(p.Start), Hi: uint64(p.End())}, (end+15)&^15)
		}
	}
	return space
}
