package detour

import (
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// How calls are noted in the table of a function that is probed at its exits (Calls), and how they are found
// if they are not in the first row searched.

// nextRow moves CX to the next row; after the last row comes the first. SI is the head. Changes AX.
func (b *builder) nextRow() {
	on := b.NewLabel()
	if k := b.table; k != nil {
		b.OpImm(asm.Sub, asm.W64, asm.CX, -1<<k.Shift)
	} else {
		b.Load(asm.W32, asm.AX, asm.At(asm.SI, headSize))
		b.Op(asm.Add, asm.W64, asm.CX, asm.AX)
	}
	b.OpLoad(asm.Cmp, asm.W64, asm.CX, asm.At(asm.SI, headEnd))
	b.Jcc(asm.NE, on)
	b.Lea(asm.CX, asm.At(asm.SI, callsHead))
	b.Bind(on)
}

// note notes the call DI, or counts it as missed. SI is the head of the calls, R11 the probe's flags. It
// returns with the call's row in CX. A Go call's row has only the key so far; any other has
// everything except the entry's values. Changes AX, DX, SI, R11.
func (b *builder) note(ofGo bool) {
	look, taken, unseen := b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.TestImm(asm.W8, asm.R11, ring.FlagEnabled)
	b.Jcc(asm.E, unseen)
	b.hash(ofGo)
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.CX, callSlot), asm.DI)
	b.Jcc(asm.NE, look)
	b.Bind(taken)
	if !ofGo {
		b.Load(asm.W64, asm.AX, asm.At(asm.DI, 0))
		b.Store(asm.W64, asm.At(asm.CX, callReturn), asm.AX)
		b.behind()
		b.Store(asm.W64, asm.At(asm.CX, callReal), asm.AX)
		b.ownTID()
		b.Store(asm.W32, asm.At(asm.CX, callTID), asm.AX)
	}
	b.backWith()
	b.Bind(look)
	b.noteRow(ofGo, taken)
	b.Bind(unseen)
	b.forgetRow(ofGo)
}

// forgetRow is for a call that is entered while its probe is disabled. Noted calls with the same key were
// abandoned, and would end at this call's return. So their rows are freed. It returns with ZF set. SI
// is the head of the calls. Changes AX, CX, DX.
func (b *builder) forgetRow(ofGo bool) {
	again := b.Mark()
	b.hash(ofGo)
	b.eachRow(func(asm.Label) {
		b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
		b.Store(asm.W32, asm.At(asm.CX, callTID), asm.AX)
		b.Store(asm.W64, asm.At(asm.CX, callSlot), asm.AX)
		b.Jmp(again)
	})
	b.back() // ZF is set
}

// eachRow emits a loop over the rows with the slot DI. At first CX is the row at which the search begins. visit
// emits the loop's body, with the row in CX. The body must not change CX or DX, and may jump to on
// when it is done. ZF is set at the end. Changes CX, DX.
func (b *builder) eachRow(visit func(on asm.Label)) {
	on, none := b.NewLabel(), b.NewLabel()
	b.Load(asm.W32, asm.DX, asm.At(asm.CX, callReach))
	search := b.Mark()
	b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, callSlot))
	b.Jcc(asm.NE, on)
	visit(on)
	b.Bind(on)
	b.Test(asm.W32, asm.DX, asm.DX)
	b.Jcc(asm.E, none)
	b.nextRow()
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jmp(search)
	b.Bind(none)
}

// hash sets CX to the row at which the search for the call DI begins, as calling.hash does.
func (b *builder) hash(ofGo bool) {
	b.spread(ofGo, func() {
		b.Load(asm.W32, asm.AX, asm.At(asm.SI, headFactor))
		b.Imul(asm.W32, asm.AX, asm.DI)
	})
	b.Load(asm.W32, asm.CX, asm.At(asm.SI, headCount))
	b.Imul(asm.W64, asm.AX, asm.CX)
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, 32)
	b.Load(asm.W32, asm.CX, asm.At(asm.SI, headSize))
	b.Imul(asm.W32, asm.AX, asm.CX)
	b.Lea(asm.CX, asm.Indexed(asm.SI, asm.AX, 1, callsHead))
}

// noteRow takes a row for the call DI, and continues at taken with the row in CX. If there is none, it counts
// the call as missed and returns. SI is the head of the calls, CX the first row, which was tried already.
// Changes AX, DX, SI, R11.
//
// It searches all rows from that one on for a free one, or for one with the same key. The call of that one was abandoned,
// unless it passes on: then it has come back by jumps, and keeps its row.
func (b *builder) noteRow(ofGo bool, taken asm.Label) {
	again, search, next, missed, same := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), taken
	if !ofGo {
		same = b.NewLabel()
	}
	b.StoreImm(asm.W16, asm.At(asm.SP, linkFreed), 0) // clears linkTried, too
	b.Store(asm.W64, asm.At(asm.SP, linkFrom), asm.CX)
	b.Bind(again)
	b.Load(asm.W64, asm.CX, asm.At(asm.SP, linkFrom))
	b.Load(asm.W32, asm.DX, asm.At(asm.SI, headCount))
	b.Bind(search)
	b.Load(asm.W64, asm.AX, asm.At(asm.CX, callSlot))
	b.Op(asm.Cmp, asm.W64, asm.AX, asm.DI)
	b.Jcc(asm.E, same)
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.NE, next)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.CX, callSlot), asm.DI) // AX is 0
	b.Jcc(asm.NE, next)
	b.Load(asm.W32, asm.R11, asm.At(asm.SI, headCount))
	b.reaches(taken)
	b.Bind(next)
	b.nextRow()
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.NE, search)
	if !ofGo {
		b.reclaim(again, missed, false)
		b.Bind(same)
		b.ifElsewhere(taken)
		b.arrived(asm.CX, asm.AX, taken)
	}
	b.Bind(missed)
	b.missed()
}

// reaches raises the reach of a call's first row (linkFrom), so that it covers the row that was taken, and
// continues at taken. The distance is R11 - DX: of R11 rows the last DX were not searched. Only this
// call's return needs the reach. Changes AX, DX, R11.
func (b *builder) reaches(taken asm.Label) {
	raise := b.NewLabel()
	b.Op(asm.Sub, asm.W32, asm.R11, asm.DX)
	b.Load(asm.W64, asm.DX, asm.At(asm.SP, linkFrom))
	b.Bind(raise)
	b.Load(asm.W32, asm.AX, asm.At(asm.DX, callReach))
	b.Op(asm.Cmp, asm.W32, asm.AX, asm.R11)
	b.Jcc(asm.AE, taken)
	b.Lock()
	b.Cmpxchg(asm.W32, asm.At(asm.DX, callReach), asm.R11)
	b.Jcc(asm.NE, raise)
	b.Jmp(taken)
}

const (
	// The assumed size of a thread's own stack, from its end down, in bytes. A call on it is over if
	// its slot is below that of the call that is being entered.
	mainReach   = 64 << 20
	threadReach = 1 << 20
)

// tidLink is a word of the frame that code that notes may use.
func (b *builder) tidLink() asm.Mem {
	if b.table != nil {
		return asm.At(asm.SP, tallyTemps+8)
	}
	return asm.At(asm.SP, linkTID)
}

// reclaim frees rows of this thread whose calls are over. If it has freed some, and was not called for this
// call before, it continues at again; else at none. Calls are over if they are lower on the same stack,
// or if the program has overwritten their slots. Changes AX, CX, DX, R11; SI is the head again at the
// end.
//
// A slot is read only if the load can't fault. A load that may fault would need a fallback handler for
// SIGSEGV and SIGBUS, which could not be removed if the program sets a handler of its own meanwhile.
// So it reads slots in the page of the slot that is being entered. If that is on the main stack, it
// also reads slots above it there: the kernel maps nothing else within 128 MB below that stack's end
// (mmap_base, arch/x86/mm/mmap.c). The tracer frees the other rows.
//
// In a common table it examines only the rows that the call may have.
func (b *builder) reclaim(again, none asm.Label, common bool) {
	scan, below, alien, near, look, dead, on := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	tried, freed := asm.At(asm.SP, linkTried), asm.At(asm.SP, linkFreed)
	tid := b.tidLink()
	b.OpMemImm(asm.Cmp, asm.W8, tried, 0)
	b.Jcc(asm.NE, none)
	b.StoreImm(asm.W8, tried, 1)
	b.ownTID()
	b.Store(asm.W32, tid, asm.AX)
	if common {
		b.Load(asm.W64, asm.CX, asm.At(asm.SP, linkFrom))
		b.MovImm(asm.DX, commonReach)
	} else {
		b.Lea(asm.CX, asm.At(asm.SI, callsHead))
		b.Load(asm.W32, asm.DX, asm.At(asm.SI, headCount))
	}
	b.Bind(scan)
	b.Load(asm.W32, asm.AX, asm.At(asm.CX, callTID))
	b.OpImm(asm.And, asm.W32, asm.AX, passedOn-1)
	b.OpLoad(asm.Cmp, asm.W32, asm.AX, tid)
	b.Jcc(asm.NE, on)
	b.Load(asm.W64, asm.R11, asm.At(asm.CX, callSlot))
	b.Op(asm.Cmp, asm.W64, asm.R11, asm.DI)
	b.Jcc(asm.B, below)
	if b.p.StackEnd != 0 {
		// Is the slot between that of the new call and the stack's end?
		b.MovImm(asm.AX, b.p.StackEnd-8)
		b.Op(asm.Cmp, asm.W64, asm.R11, asm.AX)
		b.Jcc(asm.A, near)
		b.Op(asm.Sub, asm.W64, asm.AX, asm.DI)
		b.OpImm(asm.Cmp, asm.W64, asm.AX, mainReach)
		b.Jcc(asm.B, look)
	}
	b.Bind(near) // are all its bytes in the page of the slot at DI?
	for _, last := range [...]int32{7, 0} {
		b.Lea(asm.AX, asm.At(asm.R11, last))
		b.Op(asm.Xor, asm.W64, asm.AX, asm.DI)
		b.ShiftImm(asm.Shr, asm.W64, asm.AX, 12)
		b.Jcc(asm.NE, on)
	}
	b.Bind(look)
	b.Load(asm.W64, asm.AX, asm.At(asm.R11, 0))
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.CX, callReturn))
	b.Jcc(asm.E, on)
	b.Bind(dead)
	b.freeRow()
	b.StoreImm(asm.W8, freed, 1)
	b.Bind(on)
	if common {
		b.nextRow()
	} else {
		b.Load(asm.W32, asm.AX, asm.At(asm.SI, headSize))
		b.Op(asm.Add, asm.W64, asm.CX, asm.AX)
	}
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.NE, scan)
	b.OpMemImm(asm.Cmp, asm.W8, freed, 0)
	b.Jcc(asm.NE, again)
	b.Jmp(none)

	// Are both slots within reach of the end of the same stack?
	b.Bind(below)
	within := func(reach int32, no asm.Label) {
		b.Op(asm.Sub, asm.W64, asm.AX, asm.DI)
		b.OpImm(asm.Cmp, asm.W64, asm.AX, reach)
		b.Jcc(asm.AE, no)
		b.Op(asm.Add, asm.W64, asm.AX, asm.DI)
		b.Op(asm.Sub, asm.W64, asm.AX, asm.R11)
		b.OpImm(asm.Cmp, asm.W64, asm.AX, reach)
		b.Jcc(asm.B, dead)
	}
	if b.p.StackEnd != 0 {
		b.MovImm(asm.AX, b.p.StackEnd)
		within(mainReach, alien)
	}
	b.Bind(alien)
	if b.p.TID.Seg == asm.FS && len(b.p.TID.Path) == 0 {
		// A thread's control block is at the end of its stack. Its first word is its own address
		// (glibc's tcbhead_t, musl's struct pthread).
		if b.table != nil {
			b.mayAsk(AskNothing, near)
		} else {
			b.mayFault(near)
		}
		b.Load(asm.W64, asm.AX, asm.SegAbs(asm.FS, 0))
		within(threadReach, near)
	}
	b.Jmp(near)
}

// findRow returns with the row of the call DI in CX, or with ZF set if there is none. SI is the head of the
// calls, CX the first row, which was tried already. Changes AX, DX.
func (b *builder) findRow() {
	none := b.NewLabel()
	b.Load(asm.W32, asm.DX, asm.At(asm.CX, callReach))
	b.Test(asm.W32, asm.DX, asm.DX)
	b.Jcc(asm.E, none)
	search, on := b.Mark(), b.NewLabel()
	b.nextRow()
	b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, callSlot))
	b.Jcc(asm.NE, on)
	b.backWith()
	b.Bind(on)
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.NE, search)
	b.Bind(none) // ZF is set
	b.back()
}
