package planner

import (
	"fmt"
	"maps"
	"sync"

	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// Pools is the memory for the instances of a change's return probes.
type Pools struct {
	At   symbols.Addr
	Size uint64
}

// Holds reports whether an address is in that memory. x may be nil.
func (x *Pools) Holds(at uint64) bool {
	return x != nil && at >= uint64(x.At) && at < uint64(x.At)+x.Size
}

// planPools finds memory for the instances of new return probes. Probes that are planned again keep theirs.
func (o *planner) planPools(maps []symbols.Mapping, ps []*Probe, avoid []plan.Range) error {
	o.pools = nil
	size := uint64(memory.PoolsHead)
	room := func(n int) (off uint64) {
		off, size = size, size+uint64(n+63)&^63
		return off
	}
	var laid []func(at uint64) error
	common, few := o.inCommon(ps)
	most, spare := o.mostInstances(ps, common)
	instances := func(p *Probe, most int) int {
		if p.Limited {
			return int(p.Most)
		}
		return min(int(p.Most), most)
	}
	factor := sync.OnceValue(func() uint32 { return detour.Spread(o.ground.Params.Stacks) })
	calls := func(p *Probe, x *ExitWay) error {
		n := instances(p, most)
		k, err := detour.NewCalls(0, p.Program, n)
		off := room(k.Size())
		laid = append(laid, func(at uint64) (err error) {
			k, err := detour.NewCalls(at+off, p.Program, n)
			k.Go = p.GoABI
			k.SetFactor(factor())
			x.table = &callTable{calls: k}
			return err
		})
		return err
	}
	cpus := int(o.ground.Params.CPUMask) + 1
	pool := func(p *Probe, c *Course, n int) error {
		k, err := detour.NewPool(0, p.Program, n, cpus)
		off := room(k.Size())
		f := &TrampolineWay{Probe: p}
		c.ByTrampolines = f
		laid = append(laid, func(at uint64) (err error) {
			f.Pool, err = detour.NewPool(at+off, p.Program, n, cpus)
			if o.manyCounted && o.countable(p) {
				f.Pool.KeepOn(cpus)
			}
			return err
		})
		return err
	}
	for _, p := range ps {
		var err error
		if c := o.course(p); c.ByExits == nil {
			err = pool(p, c, instances(p, most))
		} else if o.hasTable(p, common) {
			err = calls(p, c.ByExits)
		}
		if err != nil {
			return err
		}
	}
	if len(common) > 0 {
		entry := 0
		for p := range common {
			entry = max(entry, p.Program.EntrySize())
		}
		k, err := detour.NewCommonCalls(0, entry, detour.CommonRows)
		if err != nil {
			return err
		}
		off, table := room(k.Size()), &callTable{few: few}
		laid = append(laid, func(at uint64) (err error) {
			k, err := detour.NewCommonCalls(at+off, entry, detour.CommonRows)
			for p := range common {
				x := o.course(p).ByExits
				x.Anywhere = p.Anywhere
				k.Anywhere = k.Anywhere || x.Anywhere
			}
			table.calls = k
			for p := range common {
				o.course(p).ByExits.table = table
			}
			return err
		})
		laid = append(laid, o.layNoting(common, table, room))
	}
	// The last part is for probes by exits that may have to use return trampolines in the end. It is
	// only touched if they do, and untouched pages take no memory.
	size = (size + memory.PageSize - 1) &^ (memory.PageSize - 1)
	for _, p := range ps {
		if c := o.course(p); c.ByExits != nil && c.Landable {
			if err := pool(p, c, instances(p, spare)); err != nil {
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
	o.pools = &Pools{at, size}
	o.space.Exclude(plan.Range{Lo: uint64(at), Hi: uint64(at) + size})
	for _, f := range laid {
		if err := f(uint64(at)); err != nil {
			return err
		}
	}
	return nil
}

// Instances of a pool have return trampolines, which take 32 bytes each of the program's memory as soon as
// they are there. If their number wasn't given, the probes of a batch share budgetInstances (2 MiB of return
// trampolines), but each has at least leastInstances.
const (
	budgetInstances = 1 << 16
	leastInstances  = 64
)

// hasTable reports whether a return probe of a batch gets a new table of calls of its own.
func (o *planner) hasTable(p *Probe, common map[*Probe]bool) bool {
	x := o.course(p).ByExits
	return x != nil && x != p.ByExits && !common[p] && !(x.Alone && x.own && !x.taken)
}

// mostInstances is the largest number of instances of its own that a return probe of a batch may have if
// the number wasn't given. spare is that of a pool for a probe by exits that may have to use return trampolines.
func (o *planner) mostInstances(ps []*Probe, common map[*Probe]bool) (most, spare int) {
	own, landable := 0, 0
	for _, p := range ps {
		c := o.course(p)
		if !p.Limited && (c.ByExits == nil || o.hasTable(p, common)) {
			own++
		}
		if !p.Limited && c.ByExits != nil && c.Landable {
			landable++
		}
	}
	share := func(n int) int { return max(leastInstances, budgetInstances/max(n, 1)) }
	return share(own), share(landable)
}

// mostLandings is how many return addresses of a table's calls may have landings.
const mostLandings = 1 << 12

// layNoting reserves room for the common table's set of functions that note their calls, and for that of return addresses, if a function of
// the table ends in a jump through a register or memory. lay makes the sets, for its address.
func (o *planner) layNoting(common map[*Probe]bool, table *callTable, room func(n int) uint64) (lay func(at uint64) error) {
	open := false
	for p := range common {
		open = open || p.Anywhere && o.course(p).ByExits.Open != ""
	}
	if !open {
		return func(uint64) error { return nil }
	}
	noting, landings := detour.NewNoting(len(common)), detour.NewNoting(mostLandings)
	off, back := room(noting.Size()), room(landings.Size())
	return func(at uint64) error {
		noting.Addr, landings.Addr = at+off, at+back
		table.noting, table.landings = noting, landings
		return nil
	}
}

// gapNearFile is gap for what code must reach that reaches the memory file.
func (o *planner) gapNearFile(maps []symbols.Mapping, size uint64, avoid []plan.Range) (symbols.Addr, error) {
	base := o.ground.File
	at, ok, err := o.gap(maps, base, base, size, avoid)
	if err == nil && !ok {
		err = fmt.Errorf("no free addresses within 2 GiB of %v", base)
	}
	return at, err
}

// gap finds size free bytes that are within reach of all addresses in [lo, hi], and holds them; ok is false if there are
// none. avoid are ranges that only seem free.
func (o *planner) gap(maps []symbols.Mapping, lo, hi symbols.Addr, size uint64, avoid []plan.Range) (at symbols.Addr, ok bool, err error) {
	tried := map[symbols.Addr]bool{}
	for _, r := range avoid {
		tried[symbols.Addr(r.Lo)] = true
	}
	for {
		at, ok = memory.FindGap(maps, lo, hi, size, tried)
		if !ok || o.ground.Hold == nil {
			return at, ok, nil
		}
		free, err := o.ground.Hold(plan.Range{Lo: uint64(at), Hi: uint64(at) + size})
		if free || err != nil {
			return at, err == nil, err
		}
		tried[at] = true
	}
}

// commonFrom is the number of return probes in a batch from which on those by exits note their calls in
// one common table.
const commonFrom = 32

// inCommon selects the return probes of a batch that note their calls in the common table. If there are few,
// only those are in it that need it: counted ones whose function may end in a jump through a register or memory, and
// those whose calls may come back by jumps. A probe may fill all of the table, so probes whose number of calls was given
// are not in it.
func (o *planner) inCommon(ps []*Probe) (common map[*Probe]bool, few bool) {
	common = map[*Probe]bool{}
	alone := 0
	for _, p := range ps {
		c := o.course(p)
		switch {
		case c.ByExits == nil || c.ByExits == p.ByExits || p.GoABI || p.Limited || !detour.CanBeCommon(p.Program):
		case c.ByExits.Alone && c.ByExits.own && !c.ByExits.taken:
			alone++
		default:
			common[p] = true
		}
	}
	if few = len(common)+alone < commonFrom; few {
		maps.DeleteFunc(common, func(p *Probe, _ bool) bool {
			x := o.course(p).ByExits
			return !x.back && (!p.Anywhere || x.Open == "")
		})
	}
	return common, few
}
