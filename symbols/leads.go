package symbols

import (
	"debug/elf"
	"encoding/binary"
	"sort"
	"strings"
)

// Leads says in which ways the file's own code and data lead to the start of a range of
// unwinding information.
type Leads uint8

// Ways.
const (
	LeadCall     Leads = 1 << iota // a call instruction
	LeadJump                       // an unconditional jump from elsewhere
	LeadBranch                     // a conditional jump from elsewhere
	LeadTaken                      // its address is in data or an operand, so any code may call it
	LeadExported                   // a dynamic symbol has its address, so other modules may call it by name
)

// Leads says what leads to an address at which a range of unwinding information starts; 0 if
// nothing is known, or for any other address. Calls and jumps are found by their bytes,
// wherever these are, so that a reported way may not exist. No existing one is omitted, except
// jumps of two bytes, jump tables and pointers of four bytes. It is safe for concurrent use.
func (f *File) Leads(v Vaddr) Leads {
	i, ok := startAt(f.fdes(), v)
	if !ok {
		return 0
	}
	if list := f.ledTo.get(f.findLeads); i < len(list) {
		return list[i]
	}
	return 0
}

// startAt finds the range that starts at an address.
func startAt(list []fde, v Vaddr) (int, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].start >= v })
	return i, i < len(list) && list[i].start == v
}

// findLeads goes through the file once.
func (f *File) findLeads() (out []Leads) {
	var err error
	defer rescue(f.Path, &err)
	if len(f.fdes()) == 0 {
		return nil
	}
	l := newLeadFinder(f.fdes(), f.Type == elf.ET_EXEC)
	for _, c := range f.code {
		for at, b := range f.im.eachPiece(c.start, c.end, longestLead-1) {
			l.code(b, at)
		}
	}
	for _, s := range f.im.segments {
		if s.typ == elf.PT_LOAD && s.flags&elf.PF_X == 0 && s.filesz > 0 {
			for at, b := range f.im.eachPiece(s.vaddr, s.vaddr+Vaddr(s.filesz), 7) {
				l.data(b, at, f.im.section(".dynsym"))
			}
		}
	}
	return l.out
}

type leadFinder struct {
	ranges []fde
	low    Vaddr    // start of the first range
	span   Vaddr    // from there to the start of the last one
	near   []uint64 // bits of the pieces of nearSize bytes from low on in which a range starts
	blocks []uint32 // the first range that starts in each block of blockSize bytes from low on, or behind it
	out    []Leads
	fixed  bool // the file is not position-independent: operands of 32 bits may be its addresses
}

const (
	// blockSize is about the size of a function.
	blockSize = 256
	// nearSize is the alignment of most functions: a bit for each stays in the processor's cache.
	nearSize = 16
)

func newLeadFinder(ranges []fde, fixed bool) *leadFinder {
	l := &leadFinder{ranges: ranges, low: ranges[0].start, out: make([]Leads, len(ranges)), fixed: fixed}
	l.span = ranges[len(ranges)-1].start - l.low
	if l.span/blockSize > Vaddr(len(ranges))*8 {
		return l // the ranges lie far apart
	}
	l.blocks = make([]uint32, l.span/blockSize+1)
	l.near = make([]uint64, l.span/nearSize/64+1)
	for i := range ranges {
		d := ranges[i].start - l.low
		l.near[d/nearSize/64] |= 1 << (d / nearSize % 64)
	}
	i := 0
	for b := range l.blocks {
		for ranges[i].start-l.low < Vaddr(b)*blockSize {
			i++
		}
		l.blocks[b] = uint32(i)
	}
	return l
}

// startsAt finds the range that starts at an address, and is quick for nearly all.
func (l *leadFinder) startsAt(v Vaddr) (int, bool) {
	d := v - l.low
	switch {
	case d > l.span: // or before low
		return 0, false
	case l.blocks == nil:
		return startAt(l.ranges, v)
	case l.near[d/nearSize/64]>>(d/nearSize%64)&1 == 0:
		return 0, false
	}
	i := int(l.blocks[d/blockSize])
	for l.ranges[i].start < v {
		i++
	}
	return i, l.ranges[i].start == v
}

func (l *leadFinder) mark(v Vaddr, how Leads) {
	if i, ok := l.startsAt(v); ok {
		l.out[i] |= how
	}
}

// markFrom is mark for a jump at from; one within the range leads to no start.
func (l *leadFinder) markFrom(v, from Vaddr, how Leads) {
	if i, ok := l.startsAt(v); ok && (from < v || from >= l.ranges[i].end) {
		l.out[i] |= how
	}
}

// longestLead is the length of the longest bytes that code looks for.
const longestLead = 6

// code finds calls, jumps and addresses among instructions.
func (l *leadFinder) code(b []byte, base Vaddr) {
	le := binary.LittleEndian
	for i := 0; i+5 <= len(b); i++ {
		// The displacement counts from the instruction's end.
		to := func(at int) Vaddr { return base + Vaddr(at+4) + Vaddr(int64(int32(le.Uint32(b[at:])))) }
		switch op := b[i]; {
		case op == 0xe8:
			l.mark(to(i+1), LeadCall)
		case op == 0xe9:
			l.markFrom(to(i+1), base+Vaddr(i), LeadJump)
		case op == 0x0f && b[i+1]&0xf0 == 0x80 && i+6 <= len(b):
			l.markFrom(to(i+2), base+Vaddr(i), LeadBranch)
		case op == 0x8d && b[i+1]&0xc7 == 0x05 && i+6 <= len(b): // lea REG, [rip+N]
			l.mark(to(i+2), LeadTaken)
		}
		if l.fixed {
			if v := Vaddr(le.Uint32(b[i:])); v-l.low <= l.span { // hardly any is
				l.mark(v, LeadTaken)
			}
		}
	}
}

// data finds addresses in data: pointers, what relocations add, dynamic symbols.
func (l *leadFinder) data(b []byte, base Vaddr, dynsym *section) {
	for i := int(-base & 7); i+8 <= len(b); i += 8 {
		how := LeadTaken
		if at := base + Vaddr(i); dynsym != nil && at >= dynsym.addr && at-dynsym.addr < Vaddr(dynsym.size) {
			how = LeadExported
		}
		l.mark(Vaddr(binary.LittleEndian.Uint64(b[i:])), how)
	}
}

// The suffixes of parts of a function that compilers and linkers put somewhere
// else: GCC and LLVM (cold), BOLT (cold, warm), and basic block sections of LLVM
// (cold, eh, __part). Clones (isra, constprop, part, llvm, lto_priv) are functions.
var pieceSuffixes = []string{".cold", ".warm", ".eh", ".__part"}

// mayBePiece is a quick look whether PieceOf has to look at a function for an address in it.
func (f *File) mayBePiece(e *funcEntry, v Vaddr) bool {
	t := f.tables().list[e.table]
	return e.start == v && strings.Contains(t.name(&t.symbols[e.symbol]), ".")
}

// PieceOf returns the name of the function to which the code at an address belongs as a part
// that is jumped to, by its symbol: f for f.cold. ok is false for anything else. A number after
// the suffix may also be that of a function of its own, which LLVM has split off because it is
// rarely run, and calls (HotColdSplitting.cpp): then a call leads to it.
func (f *File) PieceOf(v Vaddr) (of string, ok bool) {
	list := f.functions()
	if i := entryAt(list, v); i >= 0 && !f.mayBePiece(&list[i], v) {
		return "", false
	}
	fn, known := f.FuncAt(v)
	if !known || fn.Start != v || fn.Symbol.Kind == KindFDE {
		return "", false
	}
	base, suffix := cutClone(fn.Symbol.Name)
	for _, p := range pieceSuffixes {
		at := strings.Index(suffix, p)
		if at < 0 {
			continue
		}
		rest := suffix[at+len(p):]
		if rest != "" && rest[0] != '.' {
			continue
		}
		if (rest != "" || p != ".cold") && f.Leads(v)&LeadCall != 0 {
			return "", false
		}
		return demangleName(base + suffix[:at]), true
	}
	return "", false
}
