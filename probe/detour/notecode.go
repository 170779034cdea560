package detour

import (
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// How calls are noted, and found elsewhere than where they are looked for first, in
// the table of a function whose exits are probed (Calls).

// nextRow makes CX the row behind it, the first behind the last. SI is the head.
// Changes AX.
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

// note notes the call DI, or counts it as missed. SI is the head of the calls, R11
// the probe's flags. It goes back with the call's row in CX; those of Go have nothing
// in it yet but the key, the others all but the entry's values. Changes AX, DX, SI, R11.
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

// forgetRow is for a call that is entered while its probe is disabled: those that
// were noted and have its key were left without an exit, and their rows would take
// this one's return. They are freed, and it goes back with ZF set. SI is the head of
// the calls. Changes AX, CX, DX.
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

// eachRow has the rows with the slot DI visited, one after the other in CX, which is the
// one that they are looked for at first; a visit may go to on when it is done. It changes
// neither CX nor DX. ZF is set at the end. Changes CX, DX.
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

// hash makes CX the row that calling.hash gives.
func (b *builder) hash(ofGo bool) {
	b.spread(ofGo)
	b.Load(asm.W32, asm.CX, asm.At(asm.SI, headCount))
	b.Imul(asm.W64, asm.AX, asm.CX)
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, 32)
	b.Load(asm.W32, asm.CX, asm.At(asm.SI, headSize))
	b.Imul(asm.W32, asm.AX, asm.CX)
	b.Lea(asm.CX, asm.Indexed(asm.SI, asm.AX, 1, callsHead))
}

// noteRow goes on at taken with a row for the call DI in CX, or counts it as missed
// and goes back. SI is the head of the calls, CX the row that was looked at. Changes
// AX, DX, SI, R11.
//
// It looks at all rows from that one on for a free one, or for the call's own,
// which was left without an exit.
func (b *builder) noteRow(ofGo bool, taken asm.Label) {
	again, search, next, missed := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.StoreImm(asm.W16, asm.At(asm.SP, linkFreed), 0) // and linkTried
	b.Store(asm.W64, asm.At(asm.SP, linkFrom), asm.CX)
	b.Bind(again)
	b.Load(asm.W64, asm.CX, asm.At(asm.SP, linkFrom))
	b.Load(asm.W32, asm.DX, asm.At(asm.SI, headCount))
	b.Bind(search)
	b.Load(asm.W64, asm.AX, asm.At(asm.CX, callSlot))
	b.Op(asm.Cmp, asm.W64, asm.AX, asm.DI)
	b.Jcc(asm.E, taken)
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
	}
	b.Bind(missed)
	b.missed()
}

// reaches goes on at taken when the row that a call is looked for at first (linkFrom)
// says that it may lie as far behind it as it does: of R11 rows the last DX weren't
// looked at. Only that call's return needs it. Changes AX, DX, R11.
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
	// How far below its end a thread's own stack is believed to reach. A call
	// on it that lies below the one that is just entered is over.
	mainReach   = 64 << 20
	threadReach = 1 << 20
)

// reclaim frees rows of this thread whose calls are over, and goes on at again
// if there were any, the first time; else at none. Over are those below on the
// same stack, and those whose slot the program has used anew. Slots are read only
// where nothing can fault: a load that may would need a fallback handler for SIGSEGV and
// SIGBUS, which can't leave again if the program sets a handler of its own
// meanwhile. These are the slots in the page of the one that is just entered and,
// if that is on the main stack, those above it there: the kernel maps nothing else
// within 128 MB below that stack's end (mmap_base, arch/x86/mm/mmap.c). The other
// rows are the tracer's to free. Changes AX, CX, DX, R11; SI is the head again at
// the end.
//
// In a table in common it looks at the rows that the call may have.
func (b *builder) reclaim(again, none asm.Label, common bool) {
	scan, below, alien, near, look, dead, on := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	tried, freed := asm.At(asm.SP, linkTried), asm.At(asm.SP, linkFreed)
	tid := asm.At(asm.SP, linkTID)
	if b.table != nil {
		tid = asm.At(asm.SP, tallyTemps+8)
	}
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
		// From the one entered up to the stack's end?
		b.MovImm(asm.AX, b.p.StackEnd-8)
		b.Op(asm.Cmp, asm.W64, asm.R11, asm.AX)
		b.Jcc(asm.A, near)
		b.Op(asm.Sub, asm.W64, asm.AX, asm.DI)
		b.OpImm(asm.Cmp, asm.W64, asm.AX, mainReach)
		b.Jcc(asm.B, look)
	}
	b.Bind(near) // all its bytes in the page of the slot at DI?
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

	// Both within reach of the end of the same stack?
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
		// The first word of a control block is its own address (glibc's
		// tcbhead_t, musl's struct pthread), and a thread's lies where its
		// stack ends.
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

// findRow goes back with the row of the call DI in CX, or with ZF set. SI is the
// head of the calls, CX the row that was looked at. Changes AX, DX.
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
