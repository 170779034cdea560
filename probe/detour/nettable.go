package detour

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// ErrTableFull says that a table takes no more sites; copy it to a larger one.
var ErrTableFull = errors.New("site table is full")

// ErrTable says that memory holds no site table.
var ErrTable = errors.New("not a site table")

// A site table is an open-addressed hash table with linear probing that the
// net reads while the tracer writes, little-endian:
//
//	 0  u64 mask: slots - 1, slots being a power of two
//	 8  u64 shift: 64 - log2 slots
//	64  slots × {u64 key, u64 value}
//
// A key is the address of an int3, or FaultKey of that of a load that may fault
// or of a guard byte that raises SIGILL; its slot is key*hashFactor >> shift, or the next that is free. Key 0 is
// a slot never used, and ends a search. The value is the address to go on at;
// value = key is a retired site, 0 one that isn't there.
//
// A slot keeps its key for ever, and its value is written before the key: a
// reader that finds a key finds a value of that key.
const (
	tableMask  = 0
	tableShift = 8
	tableSlots = 64
	slotShift  = 4
	slotSize   = 1 << slotShift

	hashFactor = 0x9e3779b97f4a7c15 // 2^64 / golden ratio, odd

	minTableBits, maxTableBits = 4, 24
)

// faultKey tells the keys of faults from those of int3s: a probed instruction
// may fault itself. Addresses of programs have 57 bits at most.
const faultKey = 1 << 63

// FaultKey is the key of an instruction that raises SIGSEGV, SIGBUS or SIGILL.
func FaultKey(at uint64) uint64 { return at | faultKey }

// TableSize is the size in bytes of a table of 1<<bits slots.
func TableSize(bits int) int { return tableSlots + slotSize<<bits }

// TableBits is the size of the smallest table that holds n sites and stays
// half empty.
func TableBits(n int) int {
	return min(max(bits.Len(uint(max(n, 1)*2-1)), minTableBits), maxTableBits)
}

// Table is a site table seen from the tracer. Not for concurrent use; the
// target may read its memory at any time.
type Table struct {
	w     Putter
	bits  int
	keys  []uint64
	vals  []uint64
	where map[uint64]int
}

// NewTable makes an empty table in memory that holds zeros: TableSize(bits)
// bytes, 64-aligned. bits is 4 to 24.
func NewTable(w Putter, bits int) (*Table, error) {
	if bits < minTableBits || bits > maxTableBits {
		return nil, fmt.Errorf("table of 1<<%d slots: %w", bits, ErrTable)
	}
	t := newTable(w, bits)
	t.put64(tableShift, uint64(64-bits))
	t.put64(tableMask, 1<<bits-1)
	return t, nil
}

// OpenTable takes over a table that an earlier session left; image is its
// memory. Contents that are no table give ErrTable.
func OpenTable(w Putter, image []byte) (*Table, error) {
	le := binary.LittleEndian
	if len(image) < TableSize(minTableBits) {
		return nil, ErrTable
	}
	mask := le.Uint64(image[tableMask:])
	n := bits.Len64(mask)
	if n < minTableBits || n > maxTableBits || mask&(mask+1) != 0 ||
		le.Uint64(image[tableShift:]) != uint64(64-n) || len(image) < TableSize(n) {
		return nil, ErrTable
	}
	t := newTable(w, n)
	for i := range t.keys {
		s := image[tableSlots+slotSize*i:]
		if k := le.Uint64(s); k != 0 {
			if _, twice := t.where[k]; twice {
				return nil, fmt.Errorf("site %#x twice: %w", k, ErrTable)
			}
			t.keys[i], t.vals[i], t.where[k] = k, le.Uint64(s[8:]), i
		}
	}
	return t, nil
}

func newTable(w Putter, bits int) *Table {
	n := 1 << bits
	return &Table{w: w, bits: bits, keys: make([]uint64, n), vals: make([]uint64, n), where: map[uint64]int{}}
}

// Len is the number of slots in use, removed and retired sites included.
func (t *Table) Len() int { return len(t.where) }

// Insert makes traps at site go on at to, or changes where. A table takes
// three quarters of its slots; then it gives ErrTableFull and is unchanged.
// Insert before the breakpoint is written.
func (t *Table) Insert(site, to uint64) error {
	if site == 0 {
		return fmt.Errorf("site 0: %w", ErrTable)
	}
	i, ok := t.where[site]
	if !ok {
		if len(t.where) >= len(t.keys)/4*3 {
			return ErrTableFull
		}
		for i = t.slot(site); t.keys[i] != 0; {
			i = (i + 1) & (len(t.keys) - 1)
		}
	}
	t.set(i, to)
	if !ok {
		t.keys[i] = site
		t.where[site] = i
		t.put64(tableSlots+slotSize*i, site)
	}
	return nil
}

// Retire says that the site's breakpoint is gone and the instruction back. A
// thread that trapped before goes on at the instruction; an int3 that is found
// there later is the program's.
func (t *Table) Retire(site uint64) { t.change(site, site) }

// Remove forgets the site. A thread that trapped there and whose signal isn't
// delivered yet would die of it: use Retire unless there can be none.
func (t *Table) Remove(site uint64) { t.change(site, 0) }

// Lookup is where traps at the site go on; ok is false for one removed or
// never there.
func (t *Table) Lookup(site uint64) (to uint64, ok bool) {
	i, ok := t.where[site]
	if !ok || t.vals[i] == 0 {
		return 0, false
	}
	return t.vals[i], true
}

func (t *Table) change(site, to uint64) {
	if i, ok := t.where[site]; ok {
		t.set(i, to)
	}
}

func (t *Table) set(i int, to uint64) {
	t.vals[i] = to
	t.put64(tableSlots+slotSize*i+8, to)
}

func (t *Table) slot(site uint64) int {
	f := uint64(hashFactor) // not constant: the product wraps
	return int(site * f >> (64 - t.bits))
}

func (t *Table) put64(off int, v uint64) {
	t.w.Put(off, binary.LittleEndian.AppendUint64(nil, v))
}
