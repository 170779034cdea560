package planner

import (
	"fmt"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// tallyFrom is from how many places on that are only counted a batch has a tally.
const tallyFrom = 32

// Tally is the tally that a plan's detours call.
type Tally struct {
	Code  *detour.Tally
	Fresh bool // it isn't there yet
}

// Memory is where it lies.
func (x *Tally) Memory() plan.Range {
	return plan.Range{Lo: x.Code.Base, Hi: x.Code.Base + memory.PageSize}
}

// planTally finds the tally for a plan's detours, if they are to have one, and where it
// can lie if it isn't there. The return instances have their places by then.
func (o *planner) planTally(maps []symbols.Mapping, groups map[*assess.Function][]Request, avoid []plan.Range) error {
	o.tally, o.params.Tally = nil, nil
	lo, hi, n := tallied(groups)
	if n < tallyFrom || o.ground.ShadowStack {
		return nil
	}
	calls := o.tableOf(groups)
	for _, t := range o.ground.Tallies {
		if t.Fits(&o.params) && t.Serves(calls) && near(t.Base, lo, hi) {
			o.tally, o.params.Tally = &Tally{Code: t}, t
			return nil
		}
	}
	if o.pools != nil {
		maps = withMapping(maps, o.pools.At, o.pools.Size)
	}
	tried := map[symbols.Addr]bool{}
	for _, r := range avoid {
		tried[symbols.Addr(r.Lo)] = true
	}
	at, ok := memory.FindGap(maps, lo, hi, memory.PageSize, tried)
	if !ok {
		return nil // detours count by themselves
	}
	t, err := detour.BuildTally(uint64(at), &o.params, calls)
	if err == nil && len(t.Code) > memory.PageSize {
		err = fmt.Errorf("it has %d bytes", len(t.Code))
	}
	if err != nil {
		return fmt.Errorf("code that counts: %w", err)
	}
	o.tally, o.params.Tally = &Tally{t, true}, t
	o.space.Exclude(o.tally.Memory())
	return nil
}

// tableOf is the table in common in which most return probes of a plan note their calls;
// nil if there is none.
func (o *planner) tableOf(groups map[*assess.Function][]Request) *detour.Calls {
	in, tables := map[uint64]int{}, map[uint64]*detour.Calls{}
	var most *detour.Calls
	for _, ws := range groups {
		for _, w := range ws {
			if w.Kind != Return {
				continue
			}
			if x := o.course(w.P).ByExits; x != nil && x.Calls.Common {
				in[x.Calls.Addr]++
				tables[x.Calls.Addr] = &x.Calls
			}
		}
	}
	for at, n := range in {
		if most == nil || n > in[most.Addr] || n == in[most.Addr] && at < most.Addr {
			most = tables[at]
		}
	}
	return most
}

// tallied says how many places are only counted, of those of the module that has the most
// of them, and between which addresses these are.
func tallied(groups map[*assess.Function][]Request) (lo, hi symbols.Addr, n int) {
	type places struct {
		lo, hi symbols.Addr
		n      int
	}
	in := map[*symbols.Module]*places{}
	var most places
	for _, ws := range groups {
		for i := range ws {
			w := &ws[i]
			if !w.P.Counts || w.P.GoABI || w.Site.Module.File.IsGo() {
				continue
			}
			x := in[w.Site.Module]
			if x == nil {
				x = &places{lo: w.Site.Addr}
				in[w.Site.Module] = x
			}
			x.lo, x.hi, x.n = min(x.lo, w.Site.Addr), max(x.hi, w.Site.Addr), x.n+1
			if x.n > most.n {
				most = *x
			}
		}
	}
	return most.lo, most.hi, most.n
}

// near reports whether most detours of places from lo to hi reach an address.
func near(at uint64, lo, hi symbols.Addr) bool {
	const reach = memory.Reach / 2
	return at+reach > uint64(hi) && at < uint64(lo)+reach
}
