package detour

import (
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Hits that are counted where they happen
//
// What such a hit costs in a real program is how many instructions and jumps the processor
// fetches: a call of a tally costs more than the counting itself. This code makes no call,
// uses three registers, counts where a tally does, with eight counters to a cache line, and
// doesn't save the flags where the program makes new ones before anything can look at them
// (Params.FlagsDead). It is four times as long as a call of a tally, and a quarter faster.

// countsHere reports whether the hits of all of the probes are only counted, by the code of
// their own detour.
func (p *Params) countsHere(probes []Probe) bool {
	return p.onlyCounts(probes) && p.countsInSequences() && !p.Spare
}

// countHere emits the code that counts the probes' hits.
func (b *builder) countHere(probes []Probe) error {
	for i := range probes {
		if err := b.planCounted(&probes[i]); err != nil {
			return err
		}
	}
	if err := b.ownFrame(); err != nil {
		return err
	}
	for i := range probes {
		b.countOwn(probes[i].ID)
	}
	b.frame.restore()
	return nil
}

// countOwn counts a hit of a probe, if it is switched on. Changes AX, CX and DX.
func (b *builder) countOwn(id uint32) {
	done := b.NewLabel()
	b.MovAbs(asm.CX, b.p.Flags+4*uint64(id))
	b.TestMemImm(asm.W8, asm.At(asm.CX, 0), ring.FlagEnabled)
	b.Jcc(asm.E, done)
	b.sequenceIn(asm.DX, id, func(none asm.Mem) {
		b.IncMem(asm.W64, b.inSequenceOf(asm.DX, none, int(b.p.TallyOff)+8*int(id)))
	}, b.frame.took, func() {
		f := &b.frame
		f.reload(asm.AX, asm.CX, asm.DX)
		f.step()
		f.push(asm.SI)
		b.area()
		b.countLocked(id, ring.CounterHits)
		f.took()
		b.Pop(asm.SI)
		f.cur.depth -= 8
		f.cur.saved = f.cur.saved[:len(f.cur.saved)-1]
		f.mark()
		b.Jmp(done)
	})
	b.Bind(done)
}
