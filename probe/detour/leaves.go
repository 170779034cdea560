package detour

import (
	"cmp"
	"fmt"
	"slices"

	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// BuildLeaves is BuildLeave for a return instruction by which the functions of all these probes
// may return. Their calls are noted in a common table. probes[0] is looked up first.
func BuildLeaves(base uint64, p *Params, probes []Probe, k Calls, pop uint16, tail func(c *asm.Code) error) (*Detour, error) {
	return tight(base, p, func(c *asm.Code) (*Detour, error) { return buildLeaves(c, p, probes, k, pop, tail) })
}

func buildLeaves(c *asm.Code, p *Params, probes []Probe, k Calls, pop uint16, tail func(c *asm.Code) error) (*Detour, error) {
	b := newBuilder(c, p)
	defer b.free()
	if err := k.check(); err != nil {
		return nil, err
	}
	if !k.Common || len(probes) == 0 {
		return nil, fmt.Errorf("%d probes of calls %+v in common", len(probes), k)
	}
	switch {
	case !p.leavesByTally(probes, k):
	case p.looksHere():
		if err := b.ownFrame(); err != nil {
			return nil, err
		}
		b.leaveHere(&k, p.Tally, len(probes))
		return b.leave(b.Here(), tail)
	default:
		b.beforeTally(0, true)
		b.callTally(0, p.Tally.leave)
		return b.leave(b.Here(), tail)
	}
	if !p.NoRedZone {
		b.frame.skip = redZone
	}
	var others []Probe
	for i := range probes {
		if !probes[i].counts() {
			others = append(others, probes[i])
		}
	}
	if err := b.plan(others); err != nil {
		return nil, err
	}
	b.frame.regs = append(b.frame.regs, missing(b.frame.regs, asm.DI)...)
	found := b.frame.temps
	b.frame.temps += 16 // for the row and its owner
	b.frame.under = max(b.frame.under, linkFind)
	if err := b.stack(); err != nil {
		return nil, err
	}
	(&calling{returning: returning{b: b}, k: k}).leaveOf(probes, pop, found)
	return b.leave(b.Here(), tail)
}

// counts reports whether a hit of the probe only increments a counter. One piece of code does this for all such
// probes.
func (p *Probe) counts() bool {
	return p.CountOnly && p.Program.Filter == nil && p.Bins == nil && p.Control == nil
}

// leaveOf is leave for the calls of several probes. While the call of the n-th probe is recorded, the frame's
// marks say that n hits were taken. If the call's probe only counts, they say one more than there
// are probes. The table says which calls are still to be recorded.
func (e *calling) leaveOf(probes []Probe, pop uint16, found int) {
	b, f, k := e.b, &e.b.frame, e.k
	same, look, others, further, out := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	counts := k.Anywhere
	start, counted := make([]asm.Label, len(probes)), b.NewLabel()
	for i := range start {
		if start[i] = counted; !probes[i].counts() {
			start[i] = b.NewLabel()
		} else {
			counts = true
		}
	}
	f.save(b.Code)
	again := b.Mark()
	e.first()
	b.Load(asm.W32, asm.DX, asm.At(asm.CX, callReach))
	b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, callSlot))
	b.Jcc(asm.NE, look)
	b.Bind(same)
	b.Load(asm.W64, asm.AX, asm.At(asm.DI, 0))
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.CX, callReturn))
	b.Jcc(asm.NE, look) // this call was not noted; the noted one with its slot was abandoned
	b.Load(asm.W32, asm.AX, asm.At(asm.CX, 1<<k.Shift-ownerBefore))
	if k.Anywhere {
		b.OpMemImm(asm.Cmp, asm.W32, e.more(), 0)
		b.Jcc(asm.NE, further)
	}
	own := slices.ContainsFunc(probes, func(p Probe) bool { return !p.Anywhere })
	switch {
	case k.Anywhere && !own:
		b.OpImm(asm.Cmp, asm.W32, asm.AX, anywhere)
		b.Jcc(asm.B, look)
	case k.Anywhere || len(probes) > 1:
		b.OpImm(asm.Cmp, asm.W32, asm.AX, probes[0].owner())
		b.Jcc(asm.NE, others)
	default:
		b.OpImm(asm.Cmp, asm.W32, asm.AX, probes[0].owner())
		b.Jcc(asm.NE, look)
	}
	if first := start[0]; first != counted && counts {
		b.Jmp(first)
	}
	if counts {
		b.Bind(counted)
		f.body.taken, f.cur.taken = int32(len(probes)), int32(len(probes))
		f.mark()
		e.countOwner(found, b.freeCall)
		b.Jmp(again)
	}
	if k.Anywhere {
		b.later(func() {
			b.Bind(further)
			f.body.taken, f.cur.taken = int32(len(probes)), int32(len(probes))
			f.mark()
			b.Load(asm.W32, asm.DX, e.more())
			b.Load(asm.W32, asm.AX, asm.Indexed(asm.CX, asm.DX, 4, callEntry-4))
			e.countOwner(found, func() { b.OpMemImm(asm.Sub, asm.W32, asm.At(asm.DI, 1<<k.Shift-moreBefore-callEntry), 1) })
			b.Jmp(again)
		})
	}
	for i := range probes {
		if start[i] == counted {
			continue
		}
		b.Bind(start[i])
		f.body.taken, f.cur.taken = int32(i), int32(i)
		f.mark()
		e.record(&probes[i], pop, found)
		b.Jmp(again)
	}
	f.body.taken, f.cur.taken = 0, 0
	f.mark()
	b.Bind(out)
	f.restore()
	b.later(func() {
		b.Bind(look)
		b.Test(asm.W32, asm.DX, asm.DX)
		b.Jcc(asm.E, out)
		b.nextRow()
		b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
		b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, callSlot))
		b.Jcc(asm.NE, look)
		b.Jmp(same)
	})
	switch {
	case k.Anywhere && own:
		b.later(func() {
			b.Bind(others)
			none := b.NewLabel()
			b.ownerAmong(probes, start, none)
			b.Bind(none)
			b.OpImm(asm.Cmp, asm.W32, asm.AX, anywhere)
			b.Jcc(asm.AE, counted)
			b.Jmp(look)
		})
	case len(probes) > 1 && own:
		b.later(func() {
			b.Bind(others)
			b.ownerAmong(probes, start, look)
		})
	}
}

// owner is the word in a row that says that the row is the probe's.
func (p *Probe) owner() int32 {
	if p.Anywhere {
		return int32(p.ID | anywhere)
	}
	return int32(p.ID)
}

// countOwner counts a hit of the probe with number AX, if that is switched on, in the row CX. free frees the row, or
// what it has of the call, with the address of the entry's values in DI.
func (e *calling) countOwner(found int, free func()) {
	b, f := e.b, &e.b.frame
	done, back := b.NewLabel(), b.NewLabel()
	owner := f.temp(found + 8)
	b.OpImm(asm.Add, asm.W64, asm.CX, callEntry)
	b.Store(asm.W64, f.temp(found), asm.CX)
	if e.k.Anywhere {
		b.OpImm(asm.And, asm.W32, asm.AX, ownerID)
		b.Jcc(asm.E, done) // Nobody
	}
	b.MovAbs(asm.DX, b.p.Flags)
	b.TestMemImm(asm.W8, asm.Indexed(asm.DX, asm.AX, 4, 0), ring.FlagEnabled)
	b.Jcc(asm.E, done)
	b.ImulImm(asm.W32, asm.AX, asm.AX, ring.CounterSize)
	b.Store(asm.W64, owner, asm.AX)
	locked := func() {
		b.area()
		b.Load(asm.W64, asm.DX, owner)
		b.Lock()
		b.IncMem(asm.W64, asm.Indexed(asm.SI, asm.DX, 1, int32(counterOff(0, ring.CounterHits))))
		f.took()
	}
	if b.p.countsInSequences() {
		b.sequence(0, func(none asm.Mem) {
			b.OpLoad(asm.Add, asm.W64, asm.SI, owner)
			b.IncMem(asm.W64, b.inSequence(none, counterOff(0, ring.CounterHits+ring.CounterSeq)))
		}, f.took, func() {
			locked()
			b.Jmp(back)
		})
	} else {
		locked()
	}
	b.Bind(back)
	b.Bind(done)
	b.Load(asm.W64, asm.DI, f.temp(found))
	free()
}

// ownerAmong continues at the label of to whose probe has number AX, or at none.
func (b *builder) ownerAmong(probes []Probe, to []asm.Label, none asm.Label) {
	var order []int
	for i := range probes {
		if !probes[i].Anywhere {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(probes[x].owner(), probes[y].owner()) })
	var search func(list []int)
	search = func(list []int) {
		if len(list) <= 3 {
			for _, i := range list {
				b.OpImm(asm.Cmp, asm.W32, asm.AX, probes[i].owner())
				b.Jcc(asm.E, to[i])
			}
			b.Jmp(none)
			return
		}
		upper := b.NewLabel()
		mid := len(list) / 2
		b.OpImm(asm.Cmp, asm.W32, asm.AX, probes[list[mid]].owner())
		b.Jcc(asm.AE, upper)
		search(list[:mid])
		b.Bind(upper)
		search(list[mid:])
	}
	search(order)
}
