package vars

import (
	"debug/dwarf"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/dwread"
	"kprobe/symbols/unwind"
)

// Parameters by the stores of unoptimized code
//
// The prologue of unoptimized code stores each parameter into its place in the frame. The
// store shows in which register the parameter came. This holds even if debug information leaves
// out what is passed before it, such as the environment of a Rust closure, or if LLVM has
// removed an argument from a function that no other file calls.

// store is a place in the frame that code can store to: disp from rsp or rbp.
type store struct {
	base fetch.Reg
	disp int64
}

// frameStore returns the place in the frame that an expression names once the prologue is
// over. code has been followed up to there. address says that the value's address lies at the
// place.
func (f *frame) frameStore(e *debuginfo.Entry, code *prologueCode, end uint64) (s store, address, ok bool) {
	list := e.Locations(dwarf.AttrLocation)
	base := f.fn.Locations(dwarf.AttrFrameBase)
	if len(list) != 1 || len(base) != 1 || len(base[0].Expr) != 1 || len(list[0].Expr) == 0 || list[0].Expr[0] != opFbreg {
		return s, false, false
	}
	r := dwread.At(list[0].Expr, 1)
	s.disp = r.Sleb()
	address = r.Left() == 1 && r.U8() == opDeref
	if r.Left() > 0 || r.Bad {
		return s, false, false
	}
	switch op := base[0].Expr[0]; op {
	case opReg0 + 6:
		s.base = fetch.BP
	case opReg0 + 7:
		// The place counts from the stack pointer that the function has once its frame is made.
		s.base = fetch.SP
		return s, address, code.spKnown && 8-code.sp == f.frameDepth()
	case opCallFrameCFA:
		row, found := f.module.File.Unwind().At(end)
		if !found || row.CFA.Kind != unwind.InRegister {
			return s, false, false
		}
		if s.base, ok = dwarfRegister(row.CFA.Reg); !ok || s.base != fetch.BP && s.base != fetch.SP {
			return s, false, false
		}
		if s.disp += row.CFA.Off; s.base == fetch.SP {
			// The code may have been followed beyond the prologue's end.
			s.disp += 8 - row.CFA.Off - code.sp
			return s, address, code.spKnown
		}
	default:
		return s, false, false
	}
	return s, address, true
}

// prologue follows the code from the entry on.
func (f *frame) prologue() (p prologueCode, end uint64, ok bool) {
	low, ok := f.fn.EntryPC()
	if !ok {
		return p, 0, false
	}
	end = f.prologueEnd(low)
	for _, r := range f.fn.Ranges() {
		if r.Low != low || end <= low {
			continue
		}
		code, err := f.module.File.Text(symbols.Vaddr(low), int(min(r.High-low, 256)))
		if err != nil {
			return p, 0, false
		}
		p.code = code
		p.run()
		return p, end, true
	}
	return p, 0, false
}

// stored finds a parameter by the prologue's stores of all its numbers.
func (f *frame) stored(e *debuginfo.Entry) (place, bool) {
	t, err := f.typeOf(e)
	code, end, known := f.prologue()
	s, address, ok := f.frameStore(e, &code, end)
	if err != nil || !known || !ok || !address && (t.size <= 0 || t.size > 16) {
		return place{}, false
	}
	if address {
		from, ok := code.first(s.base, s.disp, 8)
		if p := from.place(); p.kind == inMemory { // the caller has put the address there
			return place{kind: inMemory, sym: p.sym.load(8)}, ok
		}
		return place{kind: inMemory, sym: from.place().sym}, ok && from < fromXMM0
	}
	if from, ok := code.untouched(s.base, s.disp, t.size); ok {
		return from.place(), true // the caller has put it into its place
	}
	var list []piece
	for at := int64(0); at < t.size; {
		size := int64(8)
		for ; size > 0; size /= 2 {
			if size > t.size-at {
				continue
			}
			if from, ok := code.first(s.base, s.disp+at, size); ok {
				list = append(list, piece{at, size, from.place()})
				break
			}
		}
		at += max(size, 1)
	}
	if !f.covers(list, t, 0, 0) {
		return place{}, false
	}
	if len(list) == 1 && list[0].off == 0 {
		return list[0].place, true
	}
	return place{kind: inPieces, pieces: list}, len(list) > 0
}

// addressStored finds a parameter that is passed by its address and has places only after the
// entry. It follows the code up to the first of these places, to see where the address came
// from.
func (f *frame) addressStored(e *debuginfo.Entry) (place, bool) {
	low, ok := f.fn.EntryPC()
	t, err := f.typeOf(e)
	if !ok || err != nil || f.isGoFunc() || t.kind != kindStruct {
		return place{}, false
	}
	var first *debuginfo.Location
	for _, l := range e.Locations(dwarf.AttrLocation) {
		if l.Low > low && (first == nil || l.Low < first.Low) {
			first = &l
		}
	}
	if first == nil || first.Low-low > 256 {
		return place{}, false
	}
	text, err := f.module.File.Text(symbols.Vaddr(low), int(first.Low-low))
	code := prologueCode{code: text}
	if err != nil || uint64(len(text)) != first.Low-low {
		return place{}, false
	}
	if code.run(); len(code.code) > 0 || code.wroteSomewhere {
		return place{}, false
	}
	r := dwread.At(first.Expr, 0)
	op := r.U8()
	base, known := dwarfRegister(uint64(op - opBreg0))
	off := r.Sleb()
	if op < opBreg0 || op > opBreg31 || !known || base > fetch.R15 || r.Bad {
		return place{}, false
	}
	from := fromNowhere
	switch {
	case r.Left() == 0 && off == 0:
		from, ok = code.regs[base], true // the register has the address
	case r.U8() == opDeref && r.Left() == 0 && !r.Bad:
		from, ok = code.first(base, off, 8)
	default:
		return place{}, false
	}
	p := from.place()
	switch {
	case !ok || from == fromNowhere || from >= fromXMM0 && from < fromStack:
		return place{}, false
	case p.kind == inMemory:
		return place{kind: inMemory, sym: p.sym.load(8)}, true
	}
	return place{kind: inMemory, sym: p.sym}, true
}

// covers reports whether the pieces contain every number of a value.
func (f *frame) covers(list []piece, t ctype, off int64, depth int) bool {
	switch {
	case f.tooDeep(depth):
		return false
	case t.kind == kindStruct && t.entry.Tag() != dwarf.TagUnionType:
		for _, m := range f.members(t) {
			if m.static.Unit() == nil && !f.covers(list, m.typ, off+m.off, depth+1) {
				return false
			}
		}
		return true
	}
	for at := off; at < off+t.size; {
		next := at
		for _, p := range list {
			if at >= p.off && at < p.off+p.size {
				next = p.off + p.size
			}
		}
		if next == at {
			return false
		}
		at = next
	}
	return true
}
