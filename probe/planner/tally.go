package planner

import (
	"cmp"
	"fmt"
	"slices"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// tallyFrom is the number of places that are only counted from which on a batch uses a tally.
const tallyFrom = 32

// tallyAll is from how many such places on all detours that only count call the tally. Up to
// there they count by themselves: a hit costs a quarter less, and a detour is twice as long.
const tallyAll = 16384

// tallySize is how much memory a tally is given: with the pieces for a table it takes more than
// a page.
const tallySize = 2 * memory.PageSize

// Tally is the tally that a plan's detours call.
type Tally struct {
	Code  *detour.Tally
	Fresh bool // it must be written to the target
}

// Memory is the range of its memory.
func (x *Tally) Memory() plan.Range {
	return plan.Range{Lo: x.Code.Base, Hi: x.Code.Base + tallySize}
}

// planTally finds the tally for a plan's detours, if they use one, and a place for it if the target has no
// suitable one. The instances of return probes must have their places already.
func (o *planner) planTally(maps []symbols.Mapping, groups map[*assess.Function][]Request, avoid []plan.Range) error {
	o.tally, o.params.Tally = nil, nil
	lo, hi, n := tallied(groups)
	o.params.OwnCounts = n < tallyAll
	calls, needed := o.tableOf(groups)
	if n < tallyFrom && !needed || o.ground.ShadowStack {
		return nil
	}
	for _, t := range o.ground.Tallies {
		if t.Fits(&o.params) && t.Serves(calls) && near(t.Base, lo, hi) {
			o.tally, o.params.Tally = &Tally{Code: t}, t
			return nil
		}
	}
	if o.pools != nil {
		maps = withMapping(maps, o.pools.At, o.pools.Size)
	}
	at, ok, err := o.gap(maps, lo, hi, tallySize, avoid)
	if err != nil {
		return fmt.Errorf("code that counts: %w", err)
	}
	if !ok {
		return nil // the detours count by themselves
	}
	t, err := detour.BuildTally(uint64(at), &o.params, calls)
	if err == nil && len(t.Code) > tallySize {
		err = fmt.Errorf("it has %d bytes", len(t.Code))
	}
	if err != nil {
		return fmt.Errorf("code that counts: %w", err)
	}
	o.tally, o.params.Tally = &Tally{t, true}, t
	o.space.Exclude(o.tally.Memory())
	return nil
}

// FlagsWay is how far behind a function's entry, in bytes, new status flags are looked for.
const FlagsWay = 64

// flagsDead reports whether a function makes new status flags behind probes of its entry
// before anything can look at those that are there, a handler of a signal and other probes of
// the batch neither: no instruction up to there may fault. Its first pushes don't, as the
// detour's frame reaches farther down. Only the straight way is looked at.
func (o *planner) flagsDead(ws []Request) bool {
	f := o.code
	if len(ws) == 0 || o.ground.FlagsRead || ws[0].Kind != Entry && ws[0].Kind != Return && ws[0].Passing != detour.Arrives || f == nil || ws[0].Site.Addr != f.Start {
		return false
	}
	pushed := 0
	for code := f.Code; len(code) > 0; {
		way := len(f.Code) - len(code)
		if way > FlagsWay || way > 0 && o.probed(uint64(f.Start)+uint64(way)) {
			return false
		}
		i, err := insn.Decode(code)
		if err != nil || i.ReadsFlags() || i.Flags.Any(leavesWay) {
			return false
		}
		if i.Flags.Any(insn.MemRead | insn.MemWrite | insn.Push | insn.Pop) {
			_, _, _, _, named := i.Mem(code)
			if pushed += 8; named || !i.Is(insn.Push) || pushed > detour.RedZone {
				return false
			}
		}
		if i.OverwritesFlags() {
			return true
		}
		code = code[i.Len:]
	}
	return false
}

// probed reports whether a probe of the batch is at an address.
func (o *planner) probed(at uint64) bool {
	_, is := slices.BinarySearchFunc(o.wanted, at, func(r plan.Range, at uint64) int { return cmp.Compare(r.Lo, at) })
	return is
}

// leavesWay are the instructions behind which others than the next one may run.
const leavesWay = insn.RelBranch | insn.Call | insn.Ret | insn.Jmp | insn.IndirectJmp | insn.IndirectCall | insn.Syscall | insn.Trap |
	insn.Priv | insn.Halt | insn.FarBranch | insn.XBegin | insn.Undefined | insn.Stops | insn.X87

// tableOf is the common table in which most return probes of a plan note their calls; nil if there is none. needed
// says that some of its calls may be seen where they return to, or are counted and may come back by jumps.
func (o *planner) tableOf(groups map[*assess.Function][]Request) (most *detour.Calls, needed bool) {
	in, tables, needs := map[uint64]int{}, map[uint64]*detour.Calls{}, map[uint64]bool{}
	for _, ws := range groups {
		for _, w := range ws {
			if w.Kind != Return {
				continue
			}
			if x := o.course(w.P).ByExits; x != nil && x.Calls().Common {
				at := x.Calls().Addr
				in[at]++
				tables[at], needs[at] = &x.table.calls, needs[at] || x.Landings() != nil || x.back && x.Anywhere
			}
		}
	}
	for at, n := range in {
		if most == nil || n > in[most.Addr] || n == in[most.Addr] && at < most.Addr {
			most, needed = tables[at], needs[at]
		}
	}
	return most, needed
}

// tallied finds the module with the most places that are only counted. n is their number; they lie between lo
// and hi.
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

// near reports whether at is near enough that most detours of places from lo to hi can reach it.
func near(at uint64, lo, hi symbols.Addr) bool {
	const reach = memory.Reach / 2
	return at+reach > uint64(hi) && at < uint64(lo)+reach
}
