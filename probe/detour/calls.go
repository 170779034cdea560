package detour

import (
	"encoding/binary"
	"fmt"

	"kprobe/fetch"
)

// Calls is the memory of the calls of a function whose exits are probed: what the entry leaves
// for the exit if the stack must not be written. A call is known by the address of its return
// address, its slot. No two active calls have the same slot, whatever thread, coroutine or
// signal stack they are on.
//
//	0   the head, 64 bytes: addresses of shared code (Shared) and, for it, u32
//	    Count, u32 1 << Shift, u64 address after the last row, u32 Go, u32 factor
//	64  Count rows of 1 << Shift bytes each:
//	      0  u64 slot; 0: free
//	      8  u64 what the slot held at the entry
//	     16  u32 thread that entered; 0: free, or just being taken; the highest bit is
//	         passedOn
//	     20  u32 reach: how many rows after this one may hold calls whose hash is
//	         this one; it never decreases
//	     24  u64 where the program returns to: the same, or the address behind the
//	         return trampolines of functions that jumped to this one
//	     32  what fetch.EvalEntry would give: fault bits and values
//
// A slot's row is the one of its hash, or the next free row after it; the first row follows the
// last, so all rows can be in use. A row is taken by a cmpxchg of its slot. It is freed by
// setting its thread number and then its slot to 0. While it is taken and has no thread, nobody
// may free it. If the table was never full, a return mostly looks at one row; reach bounds the
// search for all.
//
// A call that never comes to an exit (longjmp, an exception, the thread's end) leaves its row
// in use. The next call with that slot takes it over. When all rows are in use, a call looks
// for rows of its own thread that are certain to be over.
type Calls struct {
	Addr  uint64 // in the target, 64-aligned
	Count int    // calls at a time: maxactive, 1 to MaxInstances
	Shift uint8  // log2 of a row's size
	// Factor is what a slot is multiplied by for its hash (SetFactor); 0 is that of the golden ratio. Calls
	// of Go and those in common have other hashes.
	Factor uint32
	// Go says that calls are known by GoKey instead of their slots, because stacks are
	// copied when they grow. Only the tracer may free rows then.
	Go bool
	// Common says that these are calls of several probes. The last eight bytes of a row say
	// whose call it is, and how many further calls it has (common.go, owners.go).
	Common bool
	// Anywhere says that calls of some probes, those with Probe.Anywhere, may return by any
	// return that looks into a common table (onward.go).
	Anywhere bool
	// Joined, on the entry's side of a common table, says that calls of the same function
	// are noted before for another probe, which has handled arriving calls. For a jump
	// (BuildJump) it says that calls of other functions may come to the jump, and were
	// handled when they arrived.
	Joined bool
	// StartsOver, with Joined on the entry's side of a common table, says that the function jumps to its own entry. So a
	// call of the same probe that is noted with the slot is the same one, unless it passes on. Follows says that the call
	// is then noted for another probe, too.
	StartsOver, Follows bool
}

const (
	headNote   = 0
	headFind   = 8
	headJump   = 16
	headCount  = 32
	headSize   = 36
	headEnd    = 40
	headGo     = 48
	headFactor = 52
	callsHead  = 64

	callSlot   = 0
	callReturn = 8
	callTID    = 16
	callReach  = 20
	callReal   = 24
	callEntry  = instEntry
)

// NewCalls lays out the memory for calls of a program at an address.
func NewCalls(addr uint64, prog *fetch.Program, count int) (Calls, error) {
	if count < 1 || count > MaxInstances {
		return Calls{}, fmt.Errorf("%d instances of a return probe", count)
	}
	k := Calls{Addr: addr, Count: count, Shift: 6}
	for callEntry+prog.EntrySize() > 1<<k.Shift {
		k.Shift++
	}
	return k, nil
}

// Size is the memory's size in bytes.
func (k Calls) Size() int { return k.offset(k.Count) }

// Head is the beginning of the memory, for detours that use s. The rest is all zero without
// calls.
func (k Calls) Head(s *Shared) []byte {
	b := make([]byte, callsHead)
	le := binary.LittleEndian
	note := s.note
	switch {
	case k.Go:
		note = s.noteGo
	case k.Common:
		note = s.noteCommon
	}
	le.PutUint64(b[headNote:], note)
	le.PutUint64(b[headFind:], s.find)
	le.PutUint64(b[headJump:], s.noteJump)
	le.PutUint32(b[headCount:], uint32(k.Count))
	le.PutUint32(b[headSize:], 1<<k.Shift)
	le.PutUint64(b[headEnd:], k.Addr+uint64(k.Size()))
	if k.Go {
		b[headGo] = 1
	}
	le.PutUint32(b[headFactor:], k.factor())
	return b
}

func (k Calls) offset(row int) int { return callsHead + row<<k.Shift }

// Used lists the calls in a copy of the memory. Number is the row's.
func (k Calls) Used(mem []byte) []Instance {
	return k.used(mem, 0, k.Count)
}

// used lists the calls in the rows from first up to, not including, end.
func (k Calls) used(mem []byte, first, end int) (used []Instance) {
	le := binary.LittleEndian
	for n := first; n < end && k.offset(n)+1<<k.Shift <= len(mem); n++ {
		b := mem[k.offset(n):]
		if slot := le.Uint64(b[callSlot:]); slot != 0 {
			used = append(used, Instance{n, le.Uint32(b[callTID:]) &^ passedOn, slot, le.Uint64(b[callReturn:]), le.Uint64(b[callReal:])})
		}
	}
	return used
}

// Entry returns what the entry has left in a row of a copy of the memory.
func (k Calls) Entry(mem []byte, row int) []byte {
	return mem[k.offset(row)+callEntry : k.offset(row+1)]
}

// Find returns the row of a probe's call in a copy of the table's memory, by its slot or its
// GoKey.
func (k Calls) Find(mem []byte, id uint32, key uint64) (in Instance, ok bool) {
	for _, in := range k.With(mem, key) {
		if k.Owner(mem, in.Number, id) {
			return in, true
		}
	}
	return Instance{}, false
}

// Marks returns the addresses of the two words that say that a row is in use. They must be set
// to zero to free it, in this order.
func (k Calls) Marks(row int) (tid, slot uint64) {
	at := k.Addr + uint64(k.offset(row))
	return at + callTID, at + callSlot
}

// Free frees a row in a copy of the memory that is written back to the target before it runs
// again.
func (k Calls) Free(mem []byte, row int) {
	if row < 0 || row >= k.Count || k.offset(row)+1<<k.Shift > len(mem) {
		return
	}
	le := binary.LittleEndian
	b := mem[k.offset(row):]
	if le.Uint64(b[callSlot:]) == 0 {
		return
	}
	le.PutUint32(b[callTID:], 0)
	le.PutUint64(b[callSlot:], 0)
}
