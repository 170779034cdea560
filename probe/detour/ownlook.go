package detour

import (
	"fmt"

	"kprobe/probe/asm"
)

// Calls that are looked for where they arrive and return
//
// Most looks into a common table find nothing: the function was called, not jumped to. So where detours
// count by themselves (owncount.go), they also look by themselves. Their own code has what is frequent:
// nothing is noted, or one call, in the row at which the search begins. The rest is left to the tally.
// The processor learns for each function which of these is usual. In the tally, where the looks of all
// functions run through the same branches, it often guesses wrong.

// looksHere reports whether detours that a tally has pieces for look into its table by themselves.
func (p *Params) looksHere() bool { return p.OwnCounts && p.countsInSequences() && !p.Spare }

// ownFrame begins the frame of code that counts and looks by itself.
func (b *builder) ownFrame() error {
	f := &b.frame
	f.skip, f.regs, f.flagsDead = redZone, []asm.Reg{asm.AX, asm.CX, asm.DX}, b.p.FlagsDead
	if err := b.stack(); err != nil {
		return err
	}
	f.save(b.Code)
	return nil
}

// beginLook begins code that looks into the table, in an ownFrame. It loads the slot into CX and
// the first row for it into AX. If that is the only row that may have the slot, and has it, the code
// continues at mine. If other rows may have the slot, it continues at some.
func (b *builder) beginLook(k *Calls, mine, some asm.Label) {
	b.Lea(asm.CX, b.frame.above(0))
	b.offsetOf(k, asm.CX)
	b.MovAbs(asm.DX, k.Addr)
	b.Lea(asm.AX, asm.Indexed(asm.DX, asm.AX, 1, callsHead))
	b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.AX, callReach), 0)
	b.Jcc(asm.NE, some)
	b.OpLoad(asm.Cmp, asm.W64, asm.CX, asm.At(asm.AX, callSlot))
	b.Jcc(asm.E, mine)
}

// endLook ends the code that beginLook has begun, and its frame. A thread that comes to some calls a piece of the tally.
func (b *builder) endLook(out, some asm.Label, piece uint64) {
	on := b.NewLabel()
	b.Bind(out)
	b.frame.restore()
	b.Bind(on)
	b.later(func() {
		b.Bind(some)
		b.frame.restore()
		b.callTally(0, piece)
		b.Jmp(on)
	})
}

// arriveHere is arrive, and leaves to the tally what isn't frequent.
func (b *builder) arriveHere(k *Calls, t *Tally) error {
	mine, some, out := b.NewLabel(), b.NewLabel(), b.NewLabel()
	if err := b.ownFrame(); err != nil {
		return err
	}
	b.beginLook(k, mine, some)
	b.endLook(out, some, t.arrive)
	b.later(func() {
		b.Bind(mine)
		b.ifElsewhereOf(asm.CX, asm.AX, asm.DX, some)
		b.arrived(asm.AX, asm.DX, some)
		b.Jmp(out)
	})
	return nil
}

// BuildReturns makes the detour of a return instruction by which calls of own end, each of which is a hit by itself, and
// calls of probes, which are noted in k. own take their hits first. It is for what CountsReturns allows.
func BuildReturns(base uint64, p *Params, own, probes []Probe, k Calls, tail func(c *asm.Code) error) (*Detour, error) {
	return tight(base, p, func(c *asm.Code) (*Detour, error) {
		b := newBuilder(c, p)
		defer b.free()
		if err := k.check(); err != nil {
			return nil, err
		}
		if !p.CountsReturns(own, probes, k) {
			return nil, fmt.Errorf("%d and %d probes of calls %+v don't count by themselves", len(own), len(probes), k)
		}
		for i := range own {
			if err := b.planCounted(&own[i]); err != nil {
				return nil, err
			}
		}
		if err := b.ownFrame(); err != nil {
			return nil, err
		}
		for i := range own {
			b.countOwn(own[i].ID)
		}
		b.leaveHere(&k, p.Tally, len(own)+len(probes))
		return b.leave(b.Here(), tail)
	})
}

// CountsReturns reports whether one detour may count the hits of own and look for calls of probes: it makes one jump
// less than two of them.
func (p *Params) CountsReturns(own, probes []Probe, k Calls) bool {
	return p.countsHere(own) && p.looksHere() && p.leavesByTally(probes, k)
}

// leaveHere is leaveAnywhere in an ownFrame, which it ends, and leaves to the tally what isn't frequent. probes is the
// number of the stage's probes, some of which may have taken their hits. From the hit on until the row is free, the
// frame's marks say that all of them and one more have.
func (b *builder) leaveHere(k *Calls, t *Tally, probes int) {
	mine, some, out := b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.beginLook(k, mine, some)
	b.endLook(out, some, t.leave)
	b.later(func() {
		b.Bind(mine)
		b.ifElsewhereOf(asm.CX, asm.AX, asm.DX, some)
		b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.AX, 1<<k.Shift-moreBefore), 0)
		b.Jcc(asm.NE, some)
		b.Load(asm.W32, asm.DX, asm.At(asm.AX, 1<<k.Shift-ownerBefore))
		b.OpImm(asm.Cmp, asm.W32, asm.DX, anywhere)
		b.Jcc(asm.BE, some) // another kind of call, or Nobody's
		b.countMine(k, probes, out)
	})
}

// countMine counts the only call in the row AX, frees the row and continues at out. Changes AX, CX, DX.
func (b *builder) countMine(k *Calls, probes int, out asm.Label) {
	f := &b.frame
	body, free := f.body, b.NewLabel()
	before, cold := f.body.taken, b.cold
	b.cold = nil // what is added runs with more on the stack
	f.reload(asm.CX, asm.DX)
	for _, r := range []asm.Reg{asm.SI, asm.DI} {
		f.step()
		f.push(r)
	}
	f.step()
	b.Push(asm.AX)
	f.cur.depth += 8
	f.mark()
	b.Load(asm.W32, asm.DI, asm.At(asm.AX, 1<<k.Shift-ownerBefore))
	b.OpImm(asm.And, asm.W32, asm.DI, ownerID)
	f.body = f.cur
	b.countDIThen(free, func() {
		f.body.taken, f.cur.taken = int32(probes)+1, int32(probes)+1
		f.mark()
	})
	b.Bind(free)
	b.Pop(asm.CX)
	f.cur.depth -= 8
	f.mark()
	b.freeRow()
	f.cur.taken = before
	f.mark()
	for _, r := range []asm.Reg{asm.DI, asm.SI} {
		b.Pop(r)
		f.cur.depth -= 8
		f.cur.saved = f.cur.saved[:len(f.cur.saved)-1]
		f.mark()
	}
	b.Jmp(out)
	b.far()
	b.cold, f.body = cold, body
}
