package detour

import "kprobe/probe/asm"

// Calls of a common table that pass on
//
// What entries and jumps do to the rows with a call's slot: they tell calls that have come by a jump from
// those that were left without an exit (Passing).

// arrived takes the mark of a call that passes on from a row. A row without it is left as it is, and the code
// continues at left. Changes temp.
func (b *builder) arrived(row, temp asm.Reg, left asm.Label) {
	tid := asm.At(row, callTID)
	b.Load(asm.W32, temp, tid)
	b.Test(asm.W32, temp, temp)
	b.Jcc(asm.NS, left)
	b.OpImm(asm.And, asm.W32, temp, passedOn-1)
	b.Store(asm.W32, tid, temp)
}

// passRow marks the call in the row CX as passing on. Changes AX.
func (b *builder) passRow() {
	b.Load(asm.W32, asm.AX, asm.At(asm.CX, callTID))
	b.OpImm(asm.Or, asm.W32, asm.AX, -passedOn)
	b.Store(asm.W32, asm.At(asm.CX, callTID), asm.AX)
}

// arrive frees the rows with the slot DI whose calls were left without an exit: those that don't pass on. own says that
// a call of the probe with number R11 is about to be noted. If it has joined others, their entry has freed these rows.
// If its function starts over, what the row has of the probe itself is removed; otherwise, or if the row passes on,
// such a call has come back by jumps, which R11 says behind it (alreadyThere). Outside of a tally such a row keeps its mark:
// a call that starts over has a row without one. CX is the row where the search begins, SI the head of the calls.
// Changes AX, CX, DX.
func (b *builder) arrive(own bool) {
	b.eachRow(func(on asm.Label) {
		left, joined := b.NewLabel(), b.NewLabel()
		if own {
			b.Test(asm.W32, asm.R11, asm.R11)
			b.Jcc(asm.S, joined)
		}
		b.ifElsewhere(left)
		b.arrived(asm.CX, asm.AX, left)
		if own {
			b.lookAlready(on)
		}
		b.Jmp(on)
		if own {
			over := b.NewLabel()
			b.Bind(joined)
			b.TestImm(asm.W32, asm.R11, startsOver)
			b.Jcc(asm.NE, over)
			b.lookAlready(on)
			b.Jmp(on)
			b.Bind(over)
			same := b.NewLabel()
			b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.CX, callTID), 0)
			b.Jcc(asm.GE, same)
			if b.table != nil {
				b.cameTo()
			}
			b.lookAlready(on)
			b.Jmp(on)
			b.Bind(same)
			b.disown(left)
			b.Jmp(on)
		}
		b.Bind(left)
		b.freeRow()
	})
}

// lookAlready adds alreadyThere to R11 if the row CX has a call of the probe with number R11, and continues at on then. SI
// is the head of the calls. Changes AX.
func (b *builder) lookAlready(on asm.Label) {
	dx := b.tidLink()
	b.Store(asm.W32, dx, asm.DX)
	b.ifOwner(func(func() asm.Mem) {
		b.OpImm(asm.Add, asm.W32, asm.R11, alreadyThere)
		b.Load(asm.W32, asm.DX, dx)
		b.Jmp(on)
	})
	b.Load(asm.W32, asm.DX, dx)
}

// passOrLeft is for a jump that notes its function's call. If calls may have come to this
// function (Calls.Joined), the rows with the slot DI are marked as passing on. Those that have the
// mark already have come through code that nobody probes. All other rows with the slot are of calls
// that were left without an exit, and are freed. R11 is the number of the probe, and says behind it
// whether one of its calls has come back (alreadyThere). CX is the row where the search begins, SI the
// head of the calls. Changes AX, CX, DX.
func (b *builder) passOrLeft() {
	b.eachRow(func(on asm.Label) {
		left := b.NewLabel()
		b.ifElsewhere(left)
		joined := b.NewLabel()
		b.Test(asm.W32, asm.R11, asm.R11)
		b.Jcc(asm.S, joined)
		b.Load(asm.W32, asm.AX, asm.At(asm.CX, callTID))
		b.Test(asm.W32, asm.AX, asm.AX)
		b.Jcc(asm.NS, left)
		b.Bind(joined)
		b.passRow()
		b.lookAlready(on)
		b.Jmp(on)
		b.Bind(left)
		b.freeRow()
	})
}

// passOn marks all rows of the call DI as passing on. CX is the row where the search begins, SI
// the head of the calls. Changes AX, CX, DX.
func (b *builder) passOn() {
	b.eachRow(func(on asm.Label) {
		b.ifElsewhere(on)
		b.passRow()
	})
}

// passCommon is BuildPassing for a common table, for all of its calls at once: a thread that
// jumps or arrives with a slot owns all rows with it that were not abandoned.
func (b *builder) passCommon(k Calls, way Passing, cond asm.Cond, always bool, tail func(c *asm.Code) error) (*Detour, error) {
	if t := b.p.tallyOf(k); t != nil {
		piece := t.arrive
		if way == PassesOn {
			piece = t.pass
		}
		if way == Arrives && b.p.looksHere() && always {
			if err := b.arriveHere(&k, t); err != nil {
				return nil, err
			}
			return b.leave(b.Here(), tail)
		}
		on := b.beforeTally(cond, always)
		b.callTally(0, piece)
		b.Bind(on)
		return b.leave(b.Here(), tail)
	}
	on, err := b.atJump(cond, always, asm.DI)
	if err != nil {
		return nil, err
	}
	(&calling{returning: returning{b: b}, k: k}).first()
	if way == PassesOn {
		b.passOn()
	} else {
		b.arrive(false)
	}
	b.frame.restore()
	b.Bind(on)
	return b.leave(b.Here(), tail)
}
