package detour

import (
	"fmt"
	"iter"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// A common table of calls
//
// If all functions of a program are probed, hundreds of them end in a jump to the same few
// functions, whose returns are theirs too. Each of those returns would have to look into
// hundreds of tables, and each probe would have a table that is nearly always empty. So they
// share one table, whose rows say whose call it is. A return makes one search: each row with
// its slot that belongs to a probe which may return here is recorded as that probe's, until
// there is none. A function that has jumped to another one has a row with the same slot as that
// one's.
//
// A call that enters a probed function at a slot either comes from such a jump, or the rows
// with that slot are of abandoned calls. So the entry frees all rows with the slot that aren't
// marked as passing on (Passing). A function that notes its calls here therefore needs no separate
// detour for arriving calls. If a marked row is of its own probe, functions jump to one another in
// a circle, maybe without end. Then a call that a tally counts takes the place of the one before,
// which is a hit (joinRow). Any other has a row of its own, and all return together; beyond mostBack it
// is missed.
//
// A row belongs to the probe whose number, its owner, is at its end, or to several (owners.go).
// Rows with a call's slot lie near the row of its hash, at most as far away as its reach says. A
// call is missed if none of commonReach rows is free. Neighbouring slots have neighbouring rows,
// so a stack's calls share few cache lines.

const (
	// commonReach is how many rows a call may lie in.
	commonReach = 128
	// A slot's first row is the slot times rowFactor, shifted right by rowShift. The factor is a little more than
	// 2^rowShift / 8: slots that are 16 bytes apart, as calls' slots are, have first rows that are two or three rows
	// apart. So there is room for a second row where one is needed, and only a stack of more than 490 KB comes back to
	// rows that it has. What the factor is more than that was searched for: it spreads stacks over the rows that a table
	// has at most. 16 stacks side by side, of 256 KiB to 16 MiB and a guard page, begin at least 1,900 rows apart
	// (TestFirstRows).
	rowFactor, rowShift = 1<<29 + 35000749, 32
	// hashShift is how many bits the hash of a slot is shifted right for the number of its first row.
	hashShift = 6
	// ownerBefore is the distance of the owner from a row's end.
	ownerBefore = 8
	// joinedOwner is the bit that means Calls.Joined, in the number that follows an entry's
	// lead into the shared code.
	joinedOwner = 1 << 31
	// startsOver and follows are the bits that mean Calls.StartsOver and Calls.Follows there. While a call is noted, the
	// bits from alreadyThere to below follows count the rows with the slot that have a call of the probe already.
	// rowOwner are the bits that a row has of the number.
	startsOver   = 1 << 29
	follows      = 1 << 28
	alreadyThere = 1 << 20
	rowOwner     = anywhere | ownerID
	// mostBack is how many calls of a probe with the same slot have rows. Each makes all later calls that begin at
	// the same row look further.
	mostBack = 16
)

// NewCommonCalls lays out a table for the calls of several probes whose programs keep at most
// so many bytes of entry values (fetch.Program.EntrySize). count is a power of two, from
// commonReach to MaxInstances.
func NewCommonCalls(addr uint64, entry, count int) (Calls, error) {
	if count < commonReach || count > MaxInstances || count&(count-1) != 0 {
		return Calls{}, fmt.Errorf("a common table of %d calls", count)
	}
	k := Calls{Addr: addr, Count: count, Shift: 6, Common: true}
	for callEntry+entry+ownerBefore > 1<<k.Shift {
		k.Shift++
	}
	return k, nil
}

// CanBeCommon reports whether the program's calls fit into a common table.
func CanBeCommon(prog *fetch.Program) bool { return callEntry+prog.EntrySize()+ownerBefore <= 128 }

// firstRow is the number of the row at which the search for a slot begins in a common table.
func (k *Calls) firstRow(slot uint64) int {
	return int(slot * rowFactor >> rowShift & uint64(k.Count-1))
}

// spreadCommon computes the hash of the slot in a register into AX: the bits from hashShift on are those of firstRow.
func (b *builder) spreadCommon(slot asm.Reg) {
	b.ImulImm(asm.W64, asm.AX, slot, rowFactor)
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, rowShift-hashShift)
}

// offsetOf computes the offset from a known table's first row, in bytes, of the row at which the search for the slot in a
// register begins, into AX.
func (b *builder) offsetOf(k *Calls, slot asm.Reg) {
	b.spreadCommon(slot)
	b.OpImm(asm.And, asm.W32, asm.AX, int32(k.Count-1)<<hashShift)
	if more := k.Shift - hashShift; more > 0 {
		b.ShiftImm(asm.Shl, asm.W32, asm.AX, more)
	}
}

// firstOf loads into CX the row at which the search for the call DI begins in a known table. SI is the head of the calls.
// Changes AX.
func (b *builder) firstOf(k *Calls) {
	b.offsetOf(k, asm.DI)
	b.Lea(asm.CX, asm.Indexed(asm.SI, asm.AX, 1, callsHead))
}

// hashCommon loads into CX the row at which the search for the call DI begins. SI is the head of the calls.
// Changes AX, DX.
func (b *builder) hashCommon() {
	if b.table != nil {
		b.firstOf(b.table)
		return
	}
	b.spreadCommon(asm.DI)
	b.ShiftImm(asm.Shr, asm.W32, asm.AX, hashShift)
	b.Load(asm.W32, asm.DX, asm.At(asm.SI, headCount))
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Op(asm.And, asm.W32, asm.AX, asm.DX)
	b.Load(asm.W32, asm.DX, asm.At(asm.SI, headSize))
	b.Imul(asm.W32, asm.AX, asm.DX)
	b.Lea(asm.CX, asm.Indexed(asm.SI, asm.AX, 1, callsHead))
}

// noteCommon is note for a common table, at an entry or at a jump.
func (b *builder) noteCommon(jump bool) {
	others := func() {
		if jump {
			b.passOrLeft()
		} else {
			b.arrive(true)
		}
	}
	slow, taken, used, unseen, again, search, next, missed := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.ifEnabled(unseen)
	b.hashCommon()
	b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.CX, callReach), 0)
	b.Jcc(asm.NE, slow)
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.CX, callSlot), asm.DI)
	if b.table == nil {
		b.Jcc(asm.NE, slow)
	} else {
		b.Jcc(asm.NE, used)
	}
	b.Bind(taken)
	b.Load(asm.W64, asm.AX, asm.At(asm.DI, 0))
	b.Store(asm.W64, asm.At(asm.CX, callReturn), asm.AX)
	b.behind()
	b.Store(asm.W64, asm.At(asm.CX, callReal), asm.AX)
	b.owned()
	b.OpImm(asm.And, asm.W32, asm.R11, rowOwner)
	b.Store(asm.W32, b.ownerOfRow(), asm.R11)
	b.StoreImm(asm.W32, b.moreOfRow(), 0)
	b.ownTID()
	if jump {
		b.OpImm(asm.Or, asm.W32, asm.AX, -passedOn)
	}
	b.Store(asm.W32, asm.At(asm.CX, callTID), asm.AX)
	b.backWith()

	if b.table != nil {
		b.Bind(used)
		b.Op(asm.Cmp, asm.W64, asm.AX, asm.DI)
		b.Jcc(asm.NE, slow)
		b.joinRow(jump, taken, slow)
	}

	b.Bind(slow)
	b.StoreImm(asm.W16, asm.At(asm.SP, linkFreed), 0) // clears linkTried, too
	b.Store(asm.W64, asm.At(asm.SP, linkFrom), asm.CX)
	b.Bind(again)
	b.Load(asm.W64, asm.CX, asm.At(asm.SP, linkFrom))
	b.owned()
	others()
	if b.table == nil {
		b.TestImm(asm.W32, asm.R11, follows-mostBack*alreadyThere)
		b.Jcc(asm.NE, missed)
	} else {
		back := b.NewLabel()
		b.TestImm(asm.W32, asm.R11, follows-alreadyThere)
		b.Jcc(asm.NE, back)
		b.later(func() {
			b.Bind(back)
			b.cameBack()
		})
	}
	b.Load(asm.W64, asm.CX, asm.At(asm.SP, linkFrom))
	b.MovImm(asm.DX, commonReach)
	b.Bind(search)
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.CX, callSlot))
	b.Jcc(asm.NE, next)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.CX, callSlot), asm.DI)
	b.Jcc(asm.NE, next)
	b.MovImm(asm.R11, commonReach)
	b.reaches(taken)
	b.Bind(next)
	b.nextRow()
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.NE, search)
	b.reclaim(again, missed, true)
	b.Bind(missed)
	b.missed()

	b.Bind(unseen)
	b.hashCommon()
	b.owned()
	others()
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX) // ZF is set
	b.back()
}

// ifEnabled continues at off if the current probe is switched off. R11 is the probe's flags; in a tally it
// becomes the probe's number. Changes AX, DX, R11.
func (b *builder) ifEnabled(off asm.Label) {
	if b.table == nil {
		b.TestImm(asm.W8, asm.R11, ring.FlagEnabled)
	} else {
		b.owned()
		b.Mov(asm.W32, asm.DX, asm.R11)
		b.OpImm(asm.And, asm.W32, asm.DX, ownerID)
		b.MovAbs(asm.AX, b.p.Flags)
		b.TestMemImm(asm.W8, asm.Indexed(asm.AX, asm.DX, 4, 0), ring.FlagEnabled)
	}
	b.Jcc(asm.E, off)
}

// ownerOfRow is the memory of the owner's number in the row CX. SI is the head of the calls. Changes AX.
func (b *builder) ownerOfRow() asm.Mem {
	if k := b.table; k != nil {
		return asm.At(asm.CX, 1<<k.Shift-ownerBefore)
	}
	b.Load(asm.W32, asm.AX, asm.At(asm.SI, headSize))
	return asm.Indexed(asm.CX, asm.AX, 1, -ownerBefore)
}

// owned loads the number of the probe whose detour has called this code into R11. Changes DX.
func (b *builder) owned() {
	if b.table != nil {
		b.Load(asm.W32, asm.R11, asm.At(asm.SP, tallyID))
		return
	}
	b.Load(asm.W64, asm.DX, asm.At(asm.SP, linkWord))
	b.Load(asm.W32, asm.R11, asm.At(asm.DX, -ownerIs))
}

// ifElsewhere continues at other if the return address in the slot DI differs from that in the row CX.
// Changes AX.
func (b *builder) ifElsewhere(other asm.Label) { b.ifElsewhereOf(asm.DI, asm.CX, asm.AX, other) }

// ifElsewhereOf is ifElsewhere for any slot and row. Changes temp.
func (b *builder) ifElsewhereOf(slot, row, temp asm.Reg, other asm.Label) {
	b.Load(asm.W64, temp, asm.At(slot, 0))
	b.OpLoad(asm.Cmp, asm.W64, temp, asm.At(row, callReturn))
	b.Jcc(asm.NE, other)
}

// freeRow frees the row CX.
func (b *builder) freeRow() {
	b.StoreImm(asm.W32, asm.At(asm.CX, callTID), 0)
	b.StoreImm(asm.W64, asm.At(asm.CX, callSlot), 0)
}

// first is for code at the end of a call. It loads the call's slot into DI, the head of the calls into SI,
// and into CX the row at which the search for the call begins. Changes AX.
func (e *calling) first() {
	b := e.b
	b.Lea(asm.DI, b.frame.above(0))
	b.MovAbs(asm.SI, e.k.Addr)
	b.firstOf(&e.k)
}

// Near yields the parts of the table's memory, from and end, that may have calls with a slot:
// all of it if the table isn't common.
func (k Calls) Near(slot uint64) iter.Seq2[int, int] {
	return func(yield func(from, end int) bool) {
		if !k.Common {
			yield(0, k.Size())
			return
		}
		first := k.firstRow(slot)
		end := first + commonReach
		if yield(k.offset(first), k.offset(min(end, k.Count))) && end > k.Count {
			yield(k.offset(0), k.offset(end-k.Count))
		}
	}
}

// With lists the calls with a slot, or a GoKey, in the order in which returns look at them. Of
// mem, a copy of the table's memory, it reads only what Near yields.
func (k Calls) With(mem []byte, slot uint64) (out []Instance) {
	for from, end := range k.Near(slot) {
		first := max(from-callsHead, 0) >> k.Shift
		for _, in := range k.used(mem, first, (end-callsHead)>>k.Shift) {
			if in.Slot == slot {
				out = append(out, in)
			}
		}
	}
	return out
}

// First returns the first call with a slot that returns to an address, in a copy of the table's
// memory, in the order in which returns look at them.
func (k Calls) First(mem []byte, slot, ra uint64) (in Instance, ok bool) {
	for _, x := range k.With(mem, slot) {
		if x.Return == ra {
			return x, true
		}
	}
	return Instance{}, false
}

// CommonRows is how many rows a common table should have. Rows of calls that longjmp has left stay in use until their
// thread finds no other row near: 64 KB of a stack may have 4,096 of them. Rows that no call has ever had take no memory.
const CommonRows = MaxInstances
