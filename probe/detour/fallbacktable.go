package detour

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// ErrTableFull says that a table's room is too small for the sites in it.
var ErrTableFull = errors.New("site table is full")

// ErrTable says that a table can't be made so, or a site can't be in one.
var ErrTable = errors.New("not a site table")

// A site table is what the fallback handler looks traps up in: an open-addressed hash table
// with linear probing that the fallback handler reads while the tracer writes. Its room,
// little-endian:
//
//	 0  u64 address in the target of the half in force; stored in one piece
//	64  two halves, each with room for the same number of slots:
//
//	     0  u64 mask: slots - 1, slots being a power of two
//	     8  u64 shift: 64 - log2 slots
//	    64  slots × {u64 key, u64 value}
//
// A key is the address of an int3, or FaultKey of that of an instruction that may
// fault or of a guard byte that raises SIGILL; its slot is key*hashFactor >> shift, or the next that is free. Key 0 is
// a slot never used, and ends a search. The value is the address to go on at;
// value = key is a retired site, 0 one that isn't there, and one with the topmost
// bit says what a fault in a copy is to look like (CopyFault).
//
// A slot keeps its key while its half is in force, and its value is written
// before the key: a reader that finds a key finds a value of that key.
//
// # How slots come back
//
// When three quarters of the slots of the half in force have keys, those that
// are still there are written into the other half, in as many slots as they
// need:
//
//	writing   the other half is cleared and filled; nothing leads there
//	switched  the word at 0 is stored: the other half is in force, with every
//	          site. The first stays as it was until the next time.
//
// So a tracer that is killed between any two stores leaves a half in force that
// has every site. A thread that is still searching in a half that is being
// written again has a signal of the program's own, since those of sites don't
// come to the fallback handler while there is a tracer: it finds nothing, there or
// elsewhere. A mask bounds its search to the half, whichever it has read.
const (
	tableForce = 0
	tableHalf  = 64

	tableMask  = 0
	tableShift = 8
	tableSlots = 64
	slotShift  = 4
	slotSize   = 1 << slotShift

	hashFactor = 0x9e3779b97f4a7c15 // 2^64 / golden ratio, odd

	minTableBits, maxTableBits = 4, 24
	// firstTableBits is the size of a table's first half, a page, where there
	// is room.
	firstTableBits = 8
)

// faultKey tells the keys of faults from those of int3s: a probed instruction
// may fault itself. Addresses of programs have 57 bits at most.
const faultKey = 1 << 63

// FaultKey is the key of an instruction that raises another signal than SIGTRAP.
func FaultKey(at uint64) uint64 { return at | faultKey }

// TableSize is the room in bytes that a table needs to hold n sites at once.
func TableSize(n int) int { return tableHalf + 2*halfSize(tableBits(n, maxTableBits)) }

func halfSize(bits int) int { return tableSlots + slotSize<<bits }

// tableBits is the size of the smallest half, of at most 1<<most slots, that has
// n sites in three eighths of its slots, and so takes as many again before the
// next is made.
func tableBits(n, most int) int {
	return min(max(bits.Len(uint((8*n+2)/3)), minTableBits), most)
}

// Table is a site table seen from the tracer. Not for concurrent use; the
// target may read its memory at any time.
type Table struct {
	w       Putter
	base    uint64 // in the target
	most    int    // log2 of the slots of a half
	half    int    // in force
	bits    int
	cleared [2]int // log2 of the slots of each half that were ever used, 0: none
	keys    []uint64
	vals    []uint64
	used    int // slots with a key
	live    int // keys whose value isn't 0
	word    [8]byte
}

// NewTable makes an empty table in memory that holds zeros: room bytes,
// 64-aligned, which start at base in the target. Room for less than 16 slots in
// each half is ErrTable.
func NewTable(w Putter, base uint64, room int) (*Table, error) {
	half := (room - tableHalf) / 2 &^ 63
	t := &Table{w: w, base: base, most: bits.Len(uint(max(half-tableSlots, 0))>>slotShift) - 1}
	if t.most = min(t.most, maxTableBits); t.most < minTableBits {
		return nil, fmt.Errorf("table of %d bytes: %w", room, ErrTable)
	}
	t.half = 1
	t.other(min(firstTableBits, t.most))
	return t, nil
}

// Len is how many sites are there, retired ones included.
func (t *Table) Len() int { return t.live }

// Spare reports whether more than half of the room is free: what the fallback handler need not
// know is to be left out elsewhere.
func (t *Table) Spare() bool { return t.live < 1<<t.most/16*5 }

// Insert makes traps at site go on at to, or changes where. A site that is
// retired or removed gives its slot back when there are no others; where every
// slot of the room is needed it gives ErrTableFull and the table is unchanged.
// Insert before the breakpoint is written.
func (t *Table) Insert(site, to uint64) error {
	if site == 0 || to == 0 {
		return fmt.Errorf("site %#x to %#x: %w", site, to, ErrTable)
	}
	if i, ok := t.find(site); ok {
		t.set(i, to)
		return nil
	}
	if t.used >= len(t.keys)/4*3 {
		if t.live >= 1<<t.most/16*11 {
			return ErrTableFull
		}
		t.other(tableBits(t.live+1, t.most))
	}
	t.put(site, to)
	return nil
}

// Reserve makes room for n sites more at once, as far as there is any, so that slots are
// not moved again and again while they come.
func (t *Table) Reserve(n int) {
	if need := t.used + n; need > len(t.keys)/4*3 {
		const full = 5 // eighths of the slots that are to have keys at most
		if b := min(bits.Len(uint(8*(t.live+n)/full)), t.most); b > t.bits {
			t.other(b)
		}
	}
}

// other fills the other half, of 1<<bits slots, and puts it into force.
func (t *Table) other(bits int) {
	keys, vals := t.keys, t.vals
	t.half, t.bits, t.live, t.used = 1-t.half, bits, 0, 0
	t.keys, t.vals = make([]uint64, 1<<bits), make([]uint64, 1<<bits)
	if used := t.cleared[t.half]; used != 0 {
		t.w.Put(t.at(0), make([]byte, halfSize(used)))
	}
	t.cleared[t.half] = max(t.cleared[t.half], bits)
	t.put64(t.at(tableShift), uint64(64-bits))
	t.put64(t.at(tableMask), 1<<bits-1)
	for i, to := range vals {
		if to != 0 {
			t.put(keys[i], to)
		}
	}
	t.put64(tableForce, t.base+uint64(t.at(0)))
}

// put gives a site that has no slot one.
func (t *Table) put(site, to uint64) {
	i := t.slot(site)
	for t.keys[i] != 0 {
		i = (i + 1) & (len(t.keys) - 1)
	}
	t.set(i, to)
	t.keys[i] = site
	t.used++
	t.put64(t.at(tableSlots+slotSize*i), site)
}

// find gives the slot of a site that has one. At least a quarter of the slots are free.
func (t *Table) find(site uint64) (i int, ok bool) {
	if site == 0 {
		return 0, false
	}
	for i = t.slot(site); t.keys[i] != 0; i = (i + 1) & (len(t.keys) - 1) {
		if t.keys[i] == site {
			return i, true
		}
	}
	return 0, false
}

// Retire says that the site's breakpoint is gone and the instruction back. A
// thread that trapped before goes on at the instruction; an int3 that is found
// there later is the program's.
func (t *Table) Retire(site uint64) { t.change(site, site) }

// Forget removes the site if it is retired: no thread can have trapped there
// that doesn't know where to go on.
func (t *Table) Forget(site uint64) {
	if i, ok := t.find(site); ok && t.vals[i] == site {
		t.set(i, 0)
	}
}

// Remove forgets the site. A thread that trapped there and whose signal isn't
// delivered yet would die of it: use Retire unless there can be none.
func (t *Table) Remove(site uint64) { t.change(site, 0) }

// Lookup is where traps at the site go on; ok is false for one removed or
// never there.
func (t *Table) Lookup(site uint64) (to uint64, ok bool) {
	i, ok := t.find(site)
	if !ok || t.vals[i] == 0 {
		return 0, false
	}
	return t.vals[i], true
}

func (t *Table) change(site, to uint64) {
	if i, ok := t.find(site); ok && t.vals[i] != 0 {
		t.set(i, to)
	}
}

func (t *Table) set(i int, to uint64) {
	switch was := t.vals[i]; {
	case was == 0 && to != 0:
		t.live++
	case was != 0 && to == 0:
		t.live--
	}
	t.vals[i] = to
	t.put64(t.at(tableSlots+slotSize*i+8), to)
}

func (t *Table) slot(site uint64) int {
	f := uint64(hashFactor) // not constant: the product wraps
	return int(site * f >> (64 - t.bits))
}

// at is the offset in the room of an offset in the half in use.
func (t *Table) at(off int) int { return tableHalf + t.half*halfSize(t.most) + off }

func (t *Table) put64(off int, v uint64) {
	binary.LittleEndian.PutUint64(t.word[:], v)
	t.w.Put(off, t.word[:])
}
