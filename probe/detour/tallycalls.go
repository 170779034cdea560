package detour

import (
	"slices"

	"kprobe/probe/asm"
)

// Calls of a common table, in shared code
//
// If the returns of all functions of a program are counted, functions that others jump to search the common table
// at each entry and each return, and mostly find nothing. Such a detour has two to four hundred bytes.
// With pieces of the tally it has thirty. The pieces are built for one table, and contain its address
// and size.

// tallyOf is the tally whose pieces detours may call for a table's calls, or nil.
func (p *Params) tallyOf(k Calls) *Tally {
	if t := p.Tally; t != nil && k.Common && t.calls.Common && t.Serves(&k) && !p.NoRedZone && p.Look == nil && p.MaxStack == 0 && p.Gate == 0 {
		return t
	}
	return nil
}

// leavesByTally reports whether a tally has a piece for a return of all these probes' functions.
func (p *Params) leavesByTally(probes []Probe, k Calls) bool {
	return p.tallyOf(k) != nil && k.Anywhere && !slices.ContainsFunc(probes, func(x Probe) bool { return !x.counts() || !x.Anywhere })
}

// beforeTally begins a detour that calls pieces of the tally. If a jump isn't taken, by cond, the code continues at
// on.
func (b *builder) beforeTally(cond asm.Cond, always bool) (on asm.Label) {
	f := &b.frame
	f.code, f.skip, f.cur = b.Code, redZone, mark{}
	f.mark()
	on = b.NewLabel()
	if !always {
		b.Jcc(cond^1, on)
	}
	return on
}

// noteByTally emits the call of a piece that notes the call of a probe's function.
func (b *builder) noteByTally(x *Probe, bits uint32, piece uint64) {
	b.callTally(uint32(x.owner())|bits, piece)
	b.frame.took()
}

// tallyCalls emits the pieces for the calls of the table.
func (b *builder) tallyCalls(t *Tally, piece func(emit func(), regs ...asm.Reg) uint64) {
	e := &calling{returning: returning{b: b}, k: *b.table}
	t.arrive = piece(func() {
		e.first()
		b.arrive(false)
	}, asm.CX, asm.DX, asm.SI, asm.DI)
	t.pass = piece(func() {
		e.first()
		b.passOn()
	}, asm.CX, asm.DX, asm.SI, asm.DI)
	t.leave = piece(e.leaveAnywhere, asm.CX, asm.DX, asm.SI, asm.DI)
	note := func(jump bool) (at, notes uint64) {
		at = piece(func() {
			b.Lea(asm.DI, b.frame.above(0))
			notes = b.Here()
			b.MovAbs(asm.SI, e.k.Addr)
			b.noteCommon(jump)
		}, asm.CX, asm.DX, asm.SI, asm.DI, asm.R11)
		return at, notes
	}
	t.jump, t.notes[0] = note(true)
	t.enter, t.notes[1] = note(false)
	e.landPieces(t, piece)
}

// countRow counts the calls in the row CX, which is kept in the temporary row, and frees the row. AX is the owner of
// the first one. After it the frame's marks say that no hit was taken. Changes what countDI does, and
// CX.
func (e *calling) countRow(row asm.Mem) {
	b, free := e.b, e.b.NewLabel()
	further := b.NewLabel()
	b.OpMemImm(asm.Cmp, asm.W32, e.more(), 0)
	b.Jcc(asm.NE, further)
	first := b.Mark()
	b.OpImm(asm.And, asm.W32, asm.AX, ownerID)
	b.Jcc(asm.E, free) // Nobody
	b.Mov(asm.W32, asm.DI, asm.AX)
	b.countDI(free)
	b.Bind(free)
	b.Load(asm.W64, asm.CX, row)
	b.freeRow()
	e.noneTaken()
	b.later(func() {
		b.Bind(further)
		again, next := b.Mark(), b.NewLabel()
		b.Load(asm.W32, asm.DX, e.more())
		b.Load(asm.W32, asm.DI, asm.Indexed(asm.CX, asm.DX, 4, callEntry-4))
		b.OpImm(asm.And, asm.W32, asm.DI, ownerID)
		b.Jcc(asm.E, next)
		b.countDI(next)
		b.Bind(next)
		b.Load(asm.W64, asm.CX, row)
		b.OpMemImm(asm.Sub, asm.W32, e.more(), 1)
		e.noneTaken()
		b.Jcc(asm.NE, again)
		b.Load(asm.W32, asm.AX, b.ownerOfRow())
		b.Jmp(first)
	})
}

// noneTaken marks that no hit was taken.
func (e *calling) noneTaken() {
	f := &e.b.frame
	f.body.taken, f.cur.taken = 0, 0
	f.mark()
}

// leaveAnywhere counts the calls that end at this return and may end at any, and frees their rows. Until a row is
// freed, the frame's marks say that no hit was taken. The table says which calls are still to be
// counted.
func (e *calling) leaveAnywhere() {
	b, f := e.b, &e.b.frame
	row, left := f.temp(0), f.temp(8)
	same, look, next := b.NewLabel(), b.NewLabel(), b.NewLabel()
	e.first()
	b.Load(asm.W32, asm.DX, asm.At(asm.CX, callReach))
	b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, callSlot))
	b.Jcc(asm.NE, look)
	b.Bind(same)
	b.ifElsewhere(look) // this call was not noted; the noted one with its slot was abandoned
	b.Load(asm.W32, asm.AX, b.ownerOfRow())
	b.OpImm(asm.Cmp, asm.W32, asm.AX, anywhere)
	b.Jcc(asm.B, look)
	b.Store(asm.W64, row, asm.CX)
	b.Store(asm.W64, left, asm.DX)
	e.countRow(row)
	b.Load(asm.W64, asm.DX, left)
	b.Test(asm.W32, asm.DX, asm.DX)
	b.Jcc(asm.E, b.pieceEnd)
	b.Lea(asm.DI, f.above(0))
	b.MovAbs(asm.SI, e.k.Addr)
	b.Jmp(next)
	b.Bind(look)
	b.Test(asm.W32, asm.DX, asm.DX)
	b.Jcc(asm.E, b.pieceEnd)
	b.Bind(next)
	b.nextRow()
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, callSlot))
	b.Jcc(asm.NE, look)
	b.Jmp(same)
}
