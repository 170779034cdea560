package detour

import (
	"kprobe/probe/asm"
)

// Calls of a table in common, in shared code
//
// Where all functions of a program have their returns counted, those that others jump to
// look into the table in common at each entry and each return, and find nothing mostly. By
// itself such a detour has two to four hundred bytes; with pieces of the tally it has
// thirty. The pieces are for one table, whose place and size they know.

// tallyOf is the tally whose pieces detours may call for the calls of a table, or nil.
func (p *Params) tallyOf(k Calls) *Tally {
	if t := p.Tally; t != nil && k.Common && t.calls.Common && t.Serves(&k) && !p.NoRedZone && p.Look == nil && p.MaxStack == 0 && p.Gate == 0 {
		return t
	}
	return nil
}

// beforeTally begins a detour that calls pieces of the tally: where a jump isn't taken, by
// cond, it goes on at on.
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
func (b *builder) noteByTally(x *Probe, joined bool, piece uint64) {
	bits := uint32(x.owner())
	if joined {
		bits |= joinedOwner
	}
	b.callTally(bits, piece)
	b.frame.took()
}

// tallyCalls emits the pieces for the calls of the table.
func (b *builder) tallyCalls(t *Tally, piece func(emit func(), regs ...asm.Reg) uint64) {
	e := &calling{returning{b: b}, *b.table}
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
}

// leaveAnywhere counts the calls that return here and are any return's, and frees their
// rows. Until it has counted one the frame's marks say that none was: which are left the
// table tells.
func (e *calling) leaveAnywhere() {
	b, f := e.b, &e.b.frame
	row, left := f.temp(0), f.temp(8)
	same, look, next, free := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	e.first()
	b.Load(asm.W32, asm.DX, asm.At(asm.CX, callReach))
	b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, callSlot))
	b.Jcc(asm.NE, look)
	b.Bind(same)
	b.ifElsewhere(look) // a call that was entered unseen, over one that was left
	b.Load(asm.W32, asm.AX, b.ownerOfRow())
	b.OpImm(asm.Cmp, asm.W32, asm.AX, anywhere)
	b.Jcc(asm.B, look)
	b.Store(asm.W64, row, asm.CX)
	b.Store(asm.W64, left, asm.DX)
	b.OpImm(asm.And, asm.W32, asm.AX, ownerID)
	b.Mov(asm.W32, asm.DI, asm.AX)
	b.countDI(free)
	b.Bind(free)
	b.Load(asm.W64, asm.CX, row)
	b.freeRow()
	f.body.taken, f.cur.taken = 0, 0
	f.mark()
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
