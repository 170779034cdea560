package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"kprobe/probe/area"
	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// Where the instances of return probes lie
//
// Those of a batch are mapped together, and found by who comes after a killed
// kprobe: the memory file has the address of the batch laid last, that one the
// address of the one before, and so on. They are unmapped when the probes are
// removed and their code has been given back (retire.go): until then a call may
// still return by them.

// poolPlan is where the instances of a change's return probes are to lie.
type poolPlan struct {
	at   symbols.Addr
	size uint64
}

func (x *poolPlan) holds(at uint64) bool {
	return x != nil && at >= uint64(x.at) && at < uint64(x.at)+x.size
}

// planPools finds room for the instances of return probes. Calls of before a change
// are noted where they were.
func (o *planner) planPools(maps []symbols.Mapping, ps []*Placed, avoid []plan.Range) error {
	o.pools = nil
	size := uint64(area.PoolsHead)
	room := func(n int) (off uint64) {
		off, size = size, size+uint64(n+63)&^63
		return off
	}
	var laid []func(at uint64) error
	common := o.inCommon(ps)
	most := o.mostInstances(ps, common)
	instances := func(p *Placed) int {
		if p.limited {
			return p.pool.Max
		}
		return min(p.pool.Max, most)
	}
	calls := func(p *Placed, x *ExitProbe) error {
		n := instances(p)
		k, err := detour.NewCalls(0, p.prog, n)
		off := room(k.Size())
		laid = append(laid, func(at uint64) (err error) {
			x.Calls, err = detour.NewCalls(at+off, p.prog, n)
			x.Calls.Go = p.goABI
			return err
		})
		return err
	}
	pool := func(p *Placed, c *course) error {
		n := instances(p)
		k, err := detour.NewPool(0, p.prog, n)
		off := room(k.Size())
		f := &trampolineProbe{noted: noted{probe: p}}
		c.byTrampolines = f
		laid = append(laid, func(at uint64) (err error) {
			f.pool, err = detour.NewPool(at+off, p.prog, n)
			return err
		})
		return err
	}
	for _, p := range ps {
		var err error
		if c := o.course(p); c.ByExits == nil {
			err = pool(p, c)
		} else if o.hasTable(p, common) {
			err = calls(p, c.ByExits)
		}
		if err != nil {
			return err
		}
	}
	if len(common) > 0 {
		entry, count := 0, 0
		for p := range common {
			entry, count = max(entry, p.prog.EntrySize()), count+p.pool.Max
		}
		count = detour.CommonRows(count)
		k, err := detour.NewCommonCalls(0, entry, count)
		if err != nil {
			return err
		}
		off := room(k.Size())
		laid = append(laid, func(at uint64) (err error) {
			k, err := detour.NewCommonCalls(at+off, entry, count)
			for p := range common {
				x := o.course(p).ByExits
				x.anywhere = p.anywhere
				k.Anywhere = k.Anywhere || x.anywhere
			}
			for p := range common {
				o.course(p).ByExits.Calls = k
			}
			return err
		})
		laid = append(laid, o.layNoting(common, room))
	}
	// Behind all that is used lies what is for probes of exits that may have to go
	// by return trampolines in the end: pages that nobody touches take no memory.
	size = (size + memory.PageSize - 1) &^ (memory.PageSize - 1)
	for _, p := range ps {
		if c := o.course(p); c.ByExits != nil && c.landable {
			if err := pool(p, c); err != nil {
				return err
			}
		}
	}
	if len(laid) == 0 {
		return nil
	}
	size = (size + memory.PageSize - 1) &^ (memory.PageSize - 1)
	at, err := o.gapNearFile(maps, size, avoid)
	if err != nil {
		return fmt.Errorf("return instances: %w", err)
	}
	o.pools = &poolPlan{at, size}
	o.space.Exclude(plan.Range{Lo: uint64(at), Hi: uint64(at) + size})
	for _, f := range laid {
		if err := f(uint64(at)); err != nil {
			return err
		}
	}
	return nil
}

// Instances of return probes that have their own are written out when they are laid, and
// so take the program's memory: those that nobody asked for share budgetInstances, 16 MiB
// of the smallest, and each probe has at least leastInstances.
const (
	budgetInstances = 1 << 18
	leastInstances  = 64
)

// hasTable reports whether a return probe of a batch gets a table of calls of its own.
func (o *planner) hasTable(p *Placed, common map[*Placed]bool) bool {
	x := o.course(p).ByExits
	return x != nil && x != p.ByExits && !common[p] && !(x.Alone && x.own)
}

// mostInstances is how many instances each return probe of a batch may have of its own where
// nobody said how many.
func (o *planner) mostInstances(ps []*Placed, common map[*Placed]bool) int {
	n := 0
	for _, p := range ps {
		if !p.limited && (o.course(p).ByExits == nil || o.hasTable(p, common)) {
			n++
		}
	}
	return max(leastInstances, budgetInstances/max(n, 1))
}

// layNoting makes room for the set of entries that jumps of probes in common ask for, if
// calls pass on by such jumps.
func (o *planner) layNoting(common map[*Placed]bool, room func(n int) uint64) (lay func(at uint64) error) {
	open := false
	for p := range common {
		open = open || p.anywhere && o.course(p).ByExits.open != ""
	}
	if !open {
		return func(uint64) error { return nil }
	}
	noting := detour.NewNoting(len(common))
	off := room(noting.Size())
	return func(at uint64) error {
		noting.Addr = at + off
		for p := range common {
			o.course(p).ByExits.noting = noting
		}
		return nil
	}
}

// gapNearFile finds free addresses that the memory file can be reached from. avoid are
// places that turned out to be taken.
func (o *planner) gapNearFile(maps []symbols.Mapping, size uint64, avoid []plan.Range) (symbols.Addr, error) {
	tried := map[symbols.Addr]bool{}
	for _, r := range avoid {
		tried[symbols.Addr(r.Lo)] = true
	}
	base := o.ground.file
	at, ok := memory.FindGap(maps, base, base, size, tried)
	if !ok {
		return 0, fmt.Errorf("no free addresses within 2 GiB of %v", base)
	}
	return at, nil
}

// commonFrom is from how many return probes of a batch on those that go by exits
// note their calls in one table.
const commonFrom = 32

// inCommon is the return probes of a batch that note their calls in one table: where
// there are many. Any of them may have all of it, so it is not for those that were
// given a number of calls.
func (o *planner) inCommon(ps []*Placed) map[*Placed]bool {
	common, alone := map[*Placed]bool{}, 0
	for _, p := range ps {
		c := o.course(p)
		switch {
		case c.ByExits == nil || c.ByExits == p.ByExits || p.goABI || p.limited || !detour.CanBeCommon(p.prog):
		case c.ByExits.Alone && c.ByExits.own:
			alone++
		default:
			common[p] = true
		}
	}
	if len(common)+alone < commonFrom {
		return nil
	}
	return common
}

// layPools maps the instances that patches have in the memory of a plan.
func (tg *Target) layPools(ctx context.Context, x *poolPlan, list []*Patch) error {
	arena, err := tg.mapPlanned(ctx, plan.Range{Lo: uint64(x.at), Hi: uint64(x.at) + x.size})
	if err == nil {
		err = tg.Area.Code.Writable(ctx, arena.Start, x.size)
	}
	if err != nil {
		tg.Area.Code.Keep(arena)
		return fmt.Errorf("return instances: %w", err)
	}
	head := tg.Area.File.Layout.Header.Off + memory.HeaderPools
	write := func(b []byte, at uint64) error {
		if err := tg.Proc.WriteMemory(b, symbols.Addr(at)); err != nil {
			return fmt.Errorf("write return instances: %w", err)
		}
		return nil
	}
	first := binary.LittleEndian.AppendUint64(nil, tg.Area.File.Load64(head))
	if err := write(binary.LittleEndian.AppendUint64(first, x.size), uint64(x.at)); err != nil {
		tg.Area.Code.Keep(arena)
		return err
	}
	tg.Area.File.Store64(head, uint64(x.at))
	tg.Area.Pools = append(tg.Area.Pools, arena)
	shared := tg.newestShared()
	seen := map[uint64]bool{}
	for _, p := range list {
		for st := range p.allStages() {
			w := st.Way
			if w == nil {
				continue
			}
			at := w.At()
			if seen[at] || !x.holds(at) {
				continue
			}
			seen[at] = true
			if err := write(w.blank(shared), at); err != nil {
				return err
			}
			if l := st.exits(); l != nil {
				tg.ExitProbes = append(tg.ExitProbes, l)
			}
		}
	}
	return nil
}

// freePools unmaps the instances of batches of which neither a probe nor code is
// left.
func (tg *Target) freePools(ctx context.Context) {
	var used []uint64
	for _, st := range tg.Patches.Stages {
		if st.Way != nil {
			used = append(used, st.Way.At())
		}
	}
	for p := range tg.Placed {
		for w := range p.ways() {
			used = append(used, w.At())
		}
	}
	holds := func(m *memory.Arena, at uint64) bool { return at >= uint64(m.Start) && at < uint64(m.End()) }
	pools := tg.Area.Pools
	for i := 0; i < len(pools); i++ {
		m := pools[i]
		if slices.ContainsFunc(used, func(at uint64) bool { return holds(m, at) }) {
			continue
		}
		if err := tg.unlinkPools(i); err != nil {
			tg.Engine.Logf("return instances stay mapped: %v", err)
			continue
		}
		tg.ExitProbes = slices.DeleteFunc(tg.ExitProbes, func(l *ExitProbe) bool { return holds(m, l.Calls.Addr) })
		pools = slices.Delete(pools, i, i+1)
		tg.Area.Pools = pools
		i--
		if err := tg.Area.Code.Unmap(ctx, m); err != nil {
			tg.Area.Code.Keep(m)
			tg.Engine.Logf("return instances stay mapped: %v", err)
		}
	}
}

// unlinkPools takes a batch's instances out of the list that leads to them.
func (tg *Target) unlinkPools(i int) error {
	pools := tg.Area.Pools
	before := uint64(0)
	if i > 0 {
		before = uint64(pools[i-1].Start)
	}
	if i+1 < len(pools) {
		return tg.Proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, before), pools[i+1].Start)
	}
	tg.Area.File.Store64(tg.Area.File.Layout.Header.Off+memory.HeaderPools, before)
	return nil
}
