package detour

import (
	"encoding/binary"
	"slices"

	"kprobe/probe/asm"
)

// Rows of several calls
//
// Functions that jump to one another leave the stack as it was when the first of them was called: their
// calls have the same slot, and return together. So the pieces of a tally keep them in one row of the
// common table, if all of them are only counted and may return by any return (anywhere): the first
// call's owner is at the end of the row, as in any other row, and the others' are where a row of
// another kind has the entry's values. Nobody but the thread whose slot it is adds to a row or takes
// from it, so this needs no locked instruction, and looks end at the first row.
//
//	32             up to moreOwners u32: owners of further calls
//	the last eight bytes: u32 owner of the first call, u32 number of further ones
//
// An owner is written before the number says that it is there, so a row is whole at each instruction. Returns
// count the last one first. If a call is over but others of the row aren't, or a probe is removed, Nobody
// takes the owner's place: the number of calls changes only by what the thread itself does.

// Nobody stands in a row in place of an owner that is gone. It has no number, and nothing is counted for it.
const Nobody = anywhere

const (
	// moreOwners is how many further calls a row has room for.
	moreOwners = 6
	// moreBefore is the distance from a row's end of the number of further calls.
	moreBefore = 4
)

// Owner reports whether one of the calls in a row is a probe's, in a copy of the table's memory.
func (k Calls) Owner(mem []byte, row int, id uint32) bool {
	if !k.Common {
		return true
	}
	return slices.Contains(k.OwnersOf(mem, row), id)
}

// OwnersOf returns the probes whose calls are in a row of a common table, in a copy of the table's memory. They
// have the order in which a return counts them. One that is gone has number 0.
func (k Calls) OwnersOf(mem []byte, row int) (ids []uint32) {
	for _, at := range k.ownersAt(mem, row) {
		ids = append(ids, binary.LittleEndian.Uint32(mem[at:])&ownerID)
	}
	return ids
}

// ownersAt returns where in the memory the owners of a row are.
func (k Calls) ownersAt(mem []byte, row int) (at []int) {
	end := k.offset(row + 1)
	for n := min(binary.LittleEndian.Uint32(mem[end-moreBefore:]), moreOwners); n > 0; n-- {
		at = append(at, k.offset(row)+callEntry+4*int(n-1))
	}
	return append(at, end-ownerBefore)
}

// Gone returns the addresses of the owners of a row that are gone, where Nobody is to be written, in a copy of the
// table's memory. left is false if none of the others is left: then the row is to be freed. A row that is just
// being taken may still have the owners that it had before. None of them is gone: a thread is about to replace them.
func (k Calls) Gone(mem []byte, row int, gone func(id uint32) bool) (words []uint64, left bool) {
	if binary.LittleEndian.Uint32(mem[k.offset(row)+callTID:]) == 0 {
		return nil, true
	}
	for _, at := range k.ownersAt(mem, row) {
		if id := binary.LittleEndian.Uint32(mem[at:]) & ownerID; id != 0 && gone(id) {
			words = append(words, k.Addr+uint64(at))
		} else if id != 0 {
			left = true
		}
	}
	return words, left
}

// Disown puts Nobody in the place of a probe in a row of a common table, in a copy of the table's memory, and returns the
// addresses where it is to be written. left is false if the row has no other call: then nothing changes, and the row is to be
// freed.
func (k Calls) Disown(mem []byte, row int, id uint32) (words []uint64, left bool) {
	at := k.ownersAt(mem, row)
	for _, x := range at {
		if other := binary.LittleEndian.Uint32(mem[x:]) & ownerID; other != 0 && other != id {
			left = true
		}
	}
	for _, x := range at {
		if w := mem[x:]; left && binary.LittleEndian.Uint32(w)&ownerID == id {
			binary.LittleEndian.PutUint32(w, Nobody)
			words = append(words, k.Addr+uint64(x))
		}
	}
	return words, left
}

// moreOfRow is the memory of the number of further calls in the row CX. SI is the head of the calls. Changes AX.
func (b *builder) moreOfRow() asm.Mem { return b.ownerOfRow().Plus(ownerBefore - moreBefore) }

// more is moreOfRow where the table is known.
func (e *calling) more() asm.Mem { return asm.At(asm.CX, 1<<e.k.Shift-moreBefore) }

// ifOwner compares the owners of the row CX with the probe whose number is R11, and emits what is done if it is one of
// them. Then owner is where it stands. Otherwise the code continues behind. SI is the head of the calls. Changes AX,
// DX.
func (b *builder) ifOwner(is func(owner func() asm.Mem)) {
	compare := func(owner asm.Mem) {
		b.Load(asm.W32, asm.AX, owner)
		b.Op(asm.Xor, asm.W32, asm.AX, asm.R11)
		b.OpImm(asm.And, asm.W32, asm.AX, rowOwner)
	}
	further, none := b.NewLabel(), b.NewLabel()
	compare(b.ownerOfRow())
	b.Jcc(asm.NE, further)
	is(b.ownerOfRow)
	b.Bind(further)
	b.Load(asm.W32, asm.DX, b.moreOfRow())
	search := b.Mark()
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.B, none)
	at := asm.Indexed(asm.CX, asm.DX, 4, callEntry)
	compare(at)
	b.Jcc(asm.NE, search)
	is(func() asm.Mem { return at })
	b.Bind(none)
}

// disown takes the call of the probe with number R11 out of the row CX. If the row has no other call, it continues at
// only, and the row doesn't change. SI is the head of the calls. Changes AX.
func (b *builder) disown(only asm.Label) {
	found, done := b.NewLabel(), b.NewLabel()
	dx := b.tidLink()
	b.Store(asm.W32, dx, asm.DX)
	b.ifOwner(func(owner func() asm.Mem) {
		b.OpMemImm(asm.Cmp, asm.W32, b.moreOfRow(), 0)
		b.Jcc(asm.E, found)
		b.StoreImm(asm.W32, owner(), Nobody)
		b.Jmp(done)
	})
	b.Jmp(done)
	b.Bind(found)
	b.Load(asm.W32, asm.DX, dx)
	b.Jmp(only)
	b.Bind(done)
	b.Load(asm.W32, asm.DX, dx)
}

// joinRow notes the call of the probe with number R11 in the first row CX, which has the slot DI already, and returns.
// If the row has a call of the probe already, that has come back by jumps: it is a hit now, and the new call takes its
// place, so that functions may jump to one another without end.
// If the function jumps to its own entry, it has come back only if the row passes on.
// It continues at anew if the calls in the row were left without a return, and the row can be noted anew;
// or at slow if the call doesn't fit. Only for a tally. Changes AX, DX, R11.
func (b *builder) joinRow(jump bool, anew, slow asm.Label) {
	joined, again, left := b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.ifElsewhere(left)
	b.Test(asm.W32, asm.R11, asm.R11)
	b.Jcc(asm.S, joined)
	b.Load(asm.W32, asm.AX, asm.At(asm.CX, callTID))
	b.Test(asm.W32, asm.AX, asm.AX)
	b.Jcc(asm.NS, left)
	b.Bind(joined)
	b.TestImm(asm.W32, asm.R11, anywhere)
	b.Jcc(asm.E, slow)
	b.TestMemImm(asm.W32, b.ownerOfRow(), anywhere)
	b.Jcc(asm.E, slow)
	b.ifOwner(func(func() asm.Mem) { b.Jmp(again) })
	b.Load(asm.W32, asm.DX, b.moreOfRow())
	b.OpImm(asm.Cmp, asm.W32, asm.DX, moreOwners)
	b.Jcc(asm.AE, slow)
	b.OpImm(asm.And, asm.W32, asm.R11, rowOwner)
	b.Store(asm.W32, asm.Indexed(asm.CX, asm.DX, 4, callEntry), asm.R11)
	b.OpMemImm(asm.Add, asm.W32, b.moreOfRow(), 1)
	goesOn := func() {
		if jump {
			b.passRow()
		} else {
			b.OpMemImm(asm.And, asm.W32, asm.At(asm.CX, callTID), passedOn-1)
		}
	}
	goesOn()
	b.backWith()
	b.later(func() {
		b.Bind(again)
		if jump {
			b.passRow()
			b.cameBack()
			return
		}
		same, came := b.NewLabel(), b.NewLabel()
		b.TestImm(asm.W32, asm.R11, startsOver)
		b.Jcc(asm.E, came)
		b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.CX, callTID), 0)
		b.Jcc(asm.GE, same)
		b.Bind(came)
		b.cameTo()
		b.cameBack()
		b.Bind(same)
		b.backWith()
	})
	b.Bind(left)
	b.StoreImm(asm.W32, asm.At(asm.CX, callTID), 0) // the row is just being taken: nobody frees it, or takes it for a call
	b.Jmp(anew)
}

// cameTo takes the mark of a call that passes on from the row CX, if no further probe has to see it. R11 is the number of the
// probe.
func (b *builder) cameTo() {
	on := b.NewLabel()
	b.TestImm(asm.W32, asm.R11, follows)
	b.Jcc(asm.NE, on)
	b.OpMemImm(asm.And, asm.W32, asm.At(asm.CX, callTID), passedOn-1)
	b.Bind(on)
}

// cameBack counts a hit of the probe with number R11, whose call has come back by jumps, and returns: the new call takes its
// place in the row. Only for a tally.
func (b *builder) cameBack() {
	done := b.NewLabel()
	b.Mov(asm.W32, asm.DI, asm.R11)
	b.OpImm(asm.And, asm.W32, asm.DI, ownerID)
	b.countDI(done)
	b.Bind(done)
	b.backWith()
}
