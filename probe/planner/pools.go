package planner

import (
	"fmt"

	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// Pools is where the instances of a change's return probes are to lie.
type Pools struct {
	At   symbols.Addr
	Size uint64
}

// Holds reports whether an address is in it.
func (x *Pools) Holds(at uint64) bool {
	return x != nil && at >= uint64(x.At) && at < uint64(x.At)+x.Size
}

// planPools finds room for the instances of return probes. Calls of before a change
// are noted where they were.
func (o *planner) planPools(maps []symbols.Mapping, ps []*Probe, avoid []plan.Range) error {
	o.pools = nil
	size := uint64(memory.PoolsHead)
	room := func(n int) (off uint64) {
		off, size = size, size+uint64(n+63)&^63
		return off
	}
	var laid []func(at uint64) error
	common := o.inCommon(ps)
	most := o.mostInstances(ps, common)
	instances := func(p *Probe) int {
		if p.Limited {
			return p.Most
		}
		return min(p.Most, most)
	}
	calls := func(p *Probe, x *ExitWay) error {
		n := instances(p)
		k, err := detour.NewCalls(0, p.Program, n)
		off := room(k.Size())
		laid = append(laid, func(at uint64) (err error) {
			x.Calls, err = detour.NewCalls(at+off, p.Program, n)
			x.Calls.Go = p.GoABI
			return err
		})
		return err
	}
	pool := func(p *Probe, c *Course) error {
		n := instances(p)
		k, err := detour.NewPool(0, p.Program, n)
		off := room(k.Size())
		f := &TrampolineWay{Probe: p}
		c.ByTrampolines = f
		laid = append(laid, func(at uint64) (err error) {
			f.Pool, err = detour.NewPool(at+off, p.Program, n)
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
			entry, count = max(entry, p.Program.EntrySize()), count+p.Most
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
				x.Anywhere = p.Anywhere
				k.Anywhere = k.Anywhere || x.Anywhere
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
		if c := o.course(p); c.ByExits != nil && c.Landable {
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
	o.pools = &Pools{at, size}
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
func (o *planner) hasTable(p *Probe, common map[*Probe]bool) bool {
	x := o.course(p).ByExits
	return x != nil && x != p.ByExits && !common[p] && !(x.Alone && x.own)
}

// mostInstances is how many instances each return probe of a batch may have of its own where
// nobody said how many.
func (o *planner) mostInstances(ps []*Probe, common map[*Probe]bool) int {
	n := 0
	for _, p := range ps {
		if !p.Limited && (o.course(p).ByExits == nil || o.hasTable(p, common)) {
			n++
		}
	}
	return max(leastInstances, budgetInstances/max(n, 1))
}

// layNoting makes room for the set of entries that jumps of probes in common ask for, if
// calls pass on by such jumps.
func (o *planner) layNoting(common map[*Probe]bool, room func(n int) uint64) (lay func(at uint64) error) {
	open := false
	for p := range common {
		open = open || p.Anywhere && o.course(p).ByExits.Open != ""
	}
	if !open {
		return func(uint64) error { return nil }
	}
	noting := detour.NewNoting(len(common))
	off := room(noting.Size())
	return func(at uint64) error {
		noting.Addr = at + off
		for p := range common {
			o.course(p).ByExits.Noting = noting
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
	base := o.ground.File
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
func (o *planner) inCommon(ps []*Probe) map[*Probe]bool {
	common, alone := map[*Probe]bool{}, 0
	for _, p := range ps {
		c := o.course(p)
		switch {
		case c.ByExits == nil || c.ByExits == p.ByExits || p.GoABI || p.Limited || !detour.CanBeCommon(p.Program):
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
