package detour

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// ErrTableFull says that a table's room is too small for the sites in it.
var ErrTableFull = errors.New("site table is full")

// ErrTable says that a table's room is too small, or that a site or its target can't be in a table.
var ErrTable = errors.New("not a site table")

// A site table is where the fallback handler looks up traps: an open-addressed hash table with
// linear probing, which the fallback handler reads while the tracer writes. Its memory,
// little-endian:
//
//	 0  u64 address in the target of the half in use; stored in one piece
//	64  two halves, each with room for the same number of slots:
//
//	     0  u64 mask: slots - 1, slots being a power of two
//	     8  u64 shift: 64 - log2 slots
//	    64  slots × {u64 key, u64 value}
//
// A key is the address of an int3, or the FaultKey of an instruction that may fault or of a
// guard byte that raises SIGILL. Its slot is key*hashFactor >> shift, or the next free one. Key
// 0 is a slot that was never used, and ends a search. The value is the address at which the
// thread continues. value = key is a retired site, 0 a removed one, and a value with the
// topmost bit set says what a fault in a copy should look like (CopyFault).
//
// A slot keeps its key as long as its half is in use, and its value is written before the key:
// a reader that finds a key finds a value of that key.
//
// # How slots are reused
//
// When three quarters of the slots of the half in use have keys, the sites that still exist are
// written into the other half, with as many slots as they need:
//
//	writing   the other half is cleared and filled; nothing leads there
//	switched  the word at 0 is stored: the other half is in use, with every site. The first
//	          half stays as it was until the next time.
//
// So a tracer that is killed between any two stores leaves a half in use that has every site. A
// thread that is still searching a half that is being rewritten has a signal of the program's
// own, because with a tracer the signals of sites don't reach the fallback handler. It finds
// nothing in either half. A mask bounds its search to the half, whichever mask it has read.
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
	// firstTableBits is the size of a table's first half, a page, if there is room.
	firstTableBits = 8
	// clearedAtOnce is how many bytes of a half are cleared at once.
	clearedAtOnce = 64 << 10
)

// faultKey distinguishes the keys of faults from those of int3s, because a probed instruction
// may fault itself. Addresses of programs have at most 57 bits.
const faultKey = 1 << 63

// FaultKey is the key of an instruction that raises a signal other than SIGTRAP.
func FaultKey(at uint64) uint64 { return at | faultKey }

// TableSize is the number of bytes that a table needs to hold n sites at once.
func TableSize(n int) int { return tableHalf + 2*halfSize(tableBits(n, maxTableBits)) }

func halfSize(bits int) int { return tableSlots + slotSize<<bits }

// tableBits is the size of the smallest half, of at most 1<<most slots, in which n sites take
// up three eighths of the slots. It can take as many again before the next half is made.
func tableBits(n, most int) int {
	return min(max(bits.Len(uint((8*n+2)/3)), minTableBits), most)
}

// Table is a site table as the tracer sees it. It is not for concurrent use; the target may
// read its memory at any time.
type Table struct {
	w       Putter
	base    uint64 // in the target
	most    int    // log2 of the slots of a half
	half    int    // in force
	bits    int
	cleared [2]int // log2 of the slots of each half that were ever used, 0: none
	// slots has, for each slot of the half in use, the number of its entry in sites, counted from 1; 0: it was
	// never used. At most three quarters of the slots have entries, and often fewer than half, so the entries
	// lie apart.
	slots []uint32
	sites []tableSite
	live  int // sites whose value isn't 0
	word  [8]byte

	together bool        // Together is running
	fresh    []tableSite // what it has yet to enter
}

// tableSite is a slot that has a key.
type tableSite struct{ key, value uint64 }

// NewTable makes an empty table in memory of zeros: room bytes, 64-aligned, which start at base
// in the target. The error is ErrTable if there is room for less than 16 slots in each half.
func NewTable(w Putter, base uint64, room int) (*Table, error) {
	half := (room - tableHalf) / 2 &^ 63
	t := &Table{w: w, base: base, most: bits.Len(uint(max(half-tableSlots, 0))>>slotShift) - 1}
	if t.most = min(t.most, maxTableBits); t.most < minTableBits {
		return nil, fmt.Errorf("table of %d bytes: %w", room, ErrTable)
	}
	t.half = 1
	t.other(min(firstTableBits, t.most), 0)
	return t, nil
}

// Len is the number of sites, including retired ones.
func (t *Table) Len() int { return t.live }

// full is how many sites there may be at most.
func (t *Table) full() int { return 1 << t.most / 16 * 11 }

// Spare reports whether more than half of the room is free. If not, optional entries should be
// left out.
func (t *Table) Spare() bool { return t.live+len(t.fresh) < 1<<t.most/16*5 }

// Insert makes traps at site continue at to, or changes where they do. It may reuse the slot of
// a retired or removed site if there are no others. If every slot is needed it returns
// ErrTableFull, and the table is unchanged. It must be called before the breakpoint is written.
func (t *Table) Insert(site, to uint64) error {
	switch {
	case site == 0 || to == 0:
		return fmt.Errorf("site %#x to %#x: %w", site, to, ErrTable)
	case t.together:
		return t.later(site, to)
	}
	return t.insert(site, to)
}

func (t *Table) insert(site, to uint64) error {
	if i, ok := t.find(site); ok {
		t.set(i, to)
		return nil
	}
	if len(t.sites) >= len(t.slots)/4*3 {
		if t.live >= t.full() {
			return ErrTableFull
		}
		t.other(tableBits(t.live+1, t.most), t.live+1)
	}
	t.put(site, to)
	return nil
}

// Reserve makes room for n more sites at once, as far as possible, so that slots are not moved
// repeatedly while the sites come.
func (t *Table) Reserve(n int) {
	if need := len(t.sites) + n; need > len(t.slots)/4*3 {
		const full = 5 // eighths of the slots that are to have keys at most
		if b := min(bits.Len(uint(8*(t.live+n)/full)), t.most); b > t.bits {
			t.other(b, t.live+n)
		}
	}
}

// other fills the other half, of 1<<bits slots, and puts it into use. It will have so many sites.
func (t *Table) other(bits, sites int) {
	before := t.sites
	t.half, t.bits, t.live = 1-t.half, bits, 0
	t.slots, t.sites = make([]uint32, 1<<bits), make([]tableSite, 0, sites)
	if used := t.cleared[t.half]; used != 0 {
		t.clear(halfSize(used))
	}
	t.cleared[t.half] = max(t.cleared[t.half], bits)
	t.put64(t.offset(tableShift), uint64(64-bits))
	t.put64(t.offset(tableMask), 1<<bits-1)
	for _, s := range before {
		if s.value != 0 {
			t.put(s.key, s.value)
		}
	}
	t.put64(tableForce, t.base+uint64(t.offset(0)))
}

// clear writes zeros over the first bytes of the half in use.
func (t *Table) clear(size int) {
	zeros := make([]byte, min(size, clearedAtOnce))
	for off := 0; off < size; off += len(zeros) {
		t.w.Put(t.offset(off), zeros[:min(len(zeros), size-off)])
	}
}

// put allocates a slot for a site that has none.
func (t *Table) put(site, to uint64) {
	i := t.slot(site)
	for t.slots[i] != 0 {
		i = (i + 1) & (len(t.slots) - 1)
	}
	t.sites = append(t.sites, tableSite{key: site})
	t.slots[i] = uint32(len(t.sites))
	t.set(i, to)
	t.put64(t.offset(tableSlots+slotSize*i), site)
}

// find returns the slot of a site that has one. At least a quarter of the slots are free.
func (t *Table) find(site uint64) (i int, ok bool) {
	if site == 0 {
		return 0, false
	}
	for i = t.slot(site); t.slots[i] != 0; i = (i + 1) & (len(t.slots) - 1) {
		if t.at(i).key == site {
			return i, true
		}
	}
	return 0, false
}

// at is the entry of a slot that has one.
func (t *Table) at(slot int) *tableSite { return &t.sites[t.slots[slot]-1] }

// Retire says that the site's breakpoint is gone and the instruction back. A thread that has
// trapped there continues at the instruction. An int3 that is found there later is the
// program's.
func (t *Table) Retire(site uint64) { t.change(site, site) }

// Forget removes a retired site. There must be no thread that has trapped there and doesn't
// know where to continue.
func (t *Table) Forget(site uint64) {
	if i, ok := t.find(site); ok && t.at(i).value == site {
		t.set(i, 0)
	}
}

// Remove removes the site. A thread that has trapped there, and whose signal isn't delivered
// yet, would die of it: use Retire unless there can be none.
func (t *Table) Remove(site uint64) { t.change(site, 0) }

// Lookup returns where traps at the site continue. ok is false for a site that was removed or
// never there.
func (t *Table) Lookup(site uint64) (to uint64, ok bool) {
	i, ok := t.find(site)
	if !ok || t.at(i).value == 0 {
		return 0, false
	}
	return t.at(i).value, true
}

func (t *Table) change(site, to uint64) {
	if i, ok := t.find(site); ok && t.at(i).value != 0 {
		t.set(i, to)
	}
}

func (t *Table) set(i int, to uint64) {
	switch was := t.at(i).value; {
	case was == 0 && to != 0:
		t.live++
	case was != 0 && to == 0:
		t.live--
	}
	t.at(i).value = to
	t.put64(t.offset(tableSlots+slotSize*i+8), to)
}

func (t *Table) slot(site uint64) int {
	f := uint64(hashFactor) // a variable, because a product of constants may not wrap
	return int(site * f >> (64 - t.bits))
}

// offset is the offset in the room of an offset in the half in use.
func (t *Table) offset(off int) int { return tableHalf + t.half*halfSize(t.most) + off }

func (t *Table) put64(off int, v uint64) {
	binary.LittleEndian.PutUint64(t.word[:], v)
	t.w.Put(off, t.word[:])
}
