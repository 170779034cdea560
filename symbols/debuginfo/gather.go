package debuginfo

import (
	"bytes"

	"kprobe/symbols/dwread"
)

// Names are kept by cells of .debug_info, which are runs of cellSize bytes. An entry belongs to
// the cell in which it starts, whatever its unit.
const (
	cellBits = 15
	cellSize = 1 << cellBits
)

// cellStart is where reading starts for a cell whose first byte is inside of a unit: the first
// entry in the cell, and the entry around that one. 0 means none.
type cellStart struct{ at, parent uint64 }

// names are the names of one kind of entries, each with its cells.
type names struct {
	places pairs // by the string's place in .debug_str
	shared pairs // by its place in the .debug_str of the file that dwz made
	hashes pairs // by its hash
}

// gathered is what one worker finds.
type gathered struct {
	d      *Data
	cells  []cellStart // shared by all workers, each of which writes other elements
	funcs  names
	others names
	blind  []uint32 // units that could not be read, or are in other files
	spans  spanSet  // the code of functions
	cross  crossRefs

	// For one unit:
	at      uint32 // its position
	planner planner
	seen    []funcName
	aimed   bitmap // offsets that entries refer to as origin or specification
	scan    scan
	room    []Range
}

// funcName is the name of a function that may have code.
type funcName struct {
	off  uint64
	num  uint64 // as scan.num has it
	form form
	live bool // it has code itself
}

// bitmap is a set of offsets in a unit.
type bitmap struct{ words []uint64 }

func (m *bitmap) reset(n uint64) {
	n = n/64 + 1
	if uint64(cap(m.words)) < n {
		m.words = make([]uint64, n+n/4)
	}
	m.words = m.words[:n]
	clear(m.words)
}

func (m *bitmap) set(i uint64)      { m.words[i/64] |= 1 << (i % 64) }
func (m *bitmap) has(i uint64) bool { return m.words[i/64]&(1<<(i%64)) != 0 }

// unit goes through a unit.
func (g *gathered) unit(whole *Unit, i uint32) {
	// The tables made of the unit aren't kept.
	u := whole.copied()
	table := readAbbrevs(g.d.sec.Abbrev, u.abbrev)
	u.abbrevs.get(func() *abbrevTable { return table })
	g.planner.reset(table, u.format())
	g.at, g.seen = i, g.seen[:0]
	g.aimed.reset(u.end - u.off)

	around := g.scan.around[:0]
	g.scan = u.scan(&g.planner, u.first, u.end)
	s := &g.scan
	s.around = around
	s.nextCell = (u.off | (cellSize - 1)) + 1
	s.cell = func(at uint64) {
		c := cellStart{at, s.parent()}
		for ; s.nextCell <= at; s.nextCell += cellSize {
			g.cells[s.nextCell>>cellBits] = c
		}
	}
	for s.next() {
		g.entry(u, s)
	}
	// The last entry may extend over whole cells.
	for c := s.nextCell; c < u.end && s.nextCell != ^uint64(0); c += cellSize {
		g.cells[c>>cellBits] = cellStart{u.end, 0}
	}
	if s.bad || u.root().hasDwo {
		g.blind = append(g.blind, i)
	}
	for k := range g.seen {
		if f := &g.seen[k]; f.live || g.aimed.has(f.off-u.off) {
			g.add(&g.funcs, u, f.off, f.num, f.form)
		}
	}
	if whole.data.release != nil {
		whole.data.release(u.off, u.end)
	}
}

// entry notes the entry at which the scan has stopped.
func (g *gathered) entry(u *Unit, s *scan) {
	k := s.plan.kind
	if k == kindType || k == kindVariable {
		for _, i := range [...]slot{slotName, slotLink} {
			if v, f := s.num(i); f != 0 {
				g.add(&g.others, u, s.off, v, f)
			}
		}
		if k == kindType {
			return
		}
	}
	for _, i := range [...]slot{slotOrigin, slotSpec} {
		if off, other, ok := s.origin(i); !ok {
			continue
		} else if other {
			g.cross.add(g.d, off, g.at)
		} else {
			g.aimed.set(off - u.off)
		}
	}
	if k != kindFunc {
		return
	}
	live := g.code(u, s)
	for _, i := range [...]slot{slotName, slotLink} {
		if v, f := s.num(i); f != 0 {
			g.seen = append(g.seen, funcName{s.off, v, f, live})
		}
	}
}

// code notes the code of a function, and reports whether it has any.
func (g *gathered) code(u *Unit, s *scan) bool {
	if _, f := s.num(slotRanges); f == 0 {
		low, f := s.num(slotLow)
		if f == 0 {
			return false
		}
		high, hf := s.num(slotHigh)
		if n, ok := (Val{form: hf, U: high}).Int(); ok && f == formAddr {
			if n > 0 && low+uint64(n) > low && !dead(low) {
				g.spans.add(span{Range{low, low + uint64(n)}, s.off})
			}
			return true
		}
	}
	e, _, ok := u.entryAt(s.off)
	if !ok {
		return true
	}
	g.room = e.rangesInto(g.room[:0])
	for _, r := range g.room {
		g.spans.add(span{r, s.off})
	}
	return true
}

// add notes a name. Strings in .debug_str are distinguished by their place, which is cheaper
// than comparing them.
func (g *gathered) add(to *names, u *Unit, off, num uint64, f form) {
	cell := uint32(off >> cellBits)
	switch f {
	case formStrp:
	case formGNUStrpAlt, formStrpSup:
		if num < 1<<32 {
			to.shared.add(uint32(num), cell)
			return
		}
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		off, ok := u.stringPlace(u.root(), num)
		if !ok {
			return
		}
		f, num = formStrp, off
	}
	if f == formStrp && num < 1<<32 {
		to.places.add(uint32(num), cell)
		return
	}
	v := Val{form: f, U: num}
	if f == formString {
		r := dwread.At(u.bytes(), num)
		v.B = r.CString()
	}
	if text := u.stringOf(u.root(), v); len(text) > 0 {
		to.hashes.add(nameHash(text), cell)
	}
}

// hashed converts the names into pairs sorted by hash. The cells of one hash aren't sorted if
// several strings have it.
func (n *names) hashed(d *Data) []uint64 {
	texts := [...]struct {
		from *pairs
		str  []byte
		done func(from, to uint64)
	}{{&n.places, d.sec.Str, d.releaseStr}, {&n.shared, nil, nil}}
	if d.alt != nil {
		texts[1].str = d.alt.sec.Str
	}
	all := &n.hashes
	for _, t := range texts {
		list := t.from.sort()
		out := list[:0]
		last, hash, none := ^uint64(0), uint64(0), true
		held := uint64(0) // pages from here on may be in memory
		for _, v := range list {
			if v>>32 != last {
				last = v >> 32
				if t.done != nil && last-held > holdAtOnce/4 {
					t.done(held, last)
					held = last
				}
				rest := t.str[min(last, uint64(len(t.str))):]
				n := bytes.IndexByte(rest, 0)
				if none = n <= 0; !none {
					hash = uint64(nameHash(rest[:n])) << 32
				}
			}
			if !none {
				out = append(out, hash|v&0xffffffff)
			}
		}
		t.from.list = out
		if len(out) > len(all.list) {
			all, t.from = t.from, all
		}
		all.list = append(all.list, t.from.list...)
		t.from.list = nil
	}
	all.room.sort(all.list)
	out := all.list
	all.list = nil
	return out
}
