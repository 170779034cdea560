package vars

import (
	"debug/dwarf"

	"kprobe/fetch"
	"kprobe/fetch/vars/touches"
	"kprobe/probe/insn"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/dwread"
)

// alignment returns the alignment of a value on the stack. It may be 0 if it is at most a
// word. A structure is aligned like its members, unless it is packed.
func (f *frame) alignment(t ctype, depth int) int64 {
	n := t.align
	switch {
	case f.tooDeep(depth):
	case t.kind == kindArray:
		elem, _ := f.element(t)
		n = max(n, f.alignment(elem, depth+1))
	case t.kind == kindStruct && !f.packed(t, depth):
		for _, m := range f.members(t) {
			if m.static.Unit() == nil {
				n = max(n, f.alignment(m.typ, depth+1))
			}
		}
	}
	return n
}

// natural returns the alignment of a type. If debug information doesn't say whether a
// structure is packed, and its members fit both ways, the structure counts as not packed.
func (f *frame) natural(t ctype, depth int) int64 {
	switch {
	case f.tooDeep(depth):
		return 1
	case t.kind == kindArray:
		elem, _ := f.element(t)
		return f.natural(elem, depth+1)
	case t.kind == kindStruct:
		least := max(t.align, 1)
		key := t.entry.Ref()
		n, known := f.naturals[key]
		if !known {
			if !f.packed(t, depth) {
				for _, m := range f.members(t) {
					if m.static.Unit() == nil {
						n = max(n, f.natural(m.typ, depth+1))
					}
				}
			}
			if f.naturals == nil {
				f.naturals = map[debuginfo.Ref]int64{}
			}
			if f.work <= maxWork {
				f.naturals[key] = n
			}
		}
		return max(n, least)
	case t.align > 0:
		return t.align
	case t.kind == kindComplex:
		return max(t.size/2, 1)
	}
	return max(t.size, 1)
}

// packed reports whether a structure has members that aren't aligned as their types demand, or
// whether its own size isn't a multiple of their alignment. GCC records an alignment only if
// the source gives one.
func (f *frame) packed(t ctype, depth int) bool {
	if t.align > 0 && f.isGNU() {
		return true
	}
	most := int64(1)
	for _, m := range f.members(t) {
		if m.static.Unit() != nil || f.tooDeep(depth) {
			continue
		}
		n := f.natural(m.typ, depth+1)
		if m.width == 0 && m.off%n != 0 {
			return true
		}
		most = max(most, n)
	}
	return t.size%most != 0
}

// misaligned reports whether LLVM passes a structure in memory because a member at off isn't
// aligned. GCC does so for numbers only. LLVM doesn't record whether the member's type is
// packed; if it may be, the answer is in doubt.
func (f *frame) misaligned(t ctype, off int64) bool {
	if f.isGNU() || t.kind != kindStruct && t.kind != kindArray || off%f.natural(t, 0) == 0 {
		return false
	}
	for i := 0; t.kind == kindArray && i < maxDimensions; i++ {
		t, _ = f.element(t)
	}
	if off%max(t.align, 1) != 0 {
		return true
	}
	f.doubtful = true
	return false
}

// mayBePacked reports whether a structure may be packed, and so be less aligned than its
// members, without debug information saying so. LLVM records the alignment that the source
// gives: if it is less than the members', the structure may be packed or not. GCC records
// nothing, so every structure is in doubt whose members lie at the same offsets either way.
func (f *frame) mayBePacked(t ctype) bool {
	if t.kind != kindStruct {
		return false
	}
	own := f.whole(t)
	n, told := own.entry.Int(attrAlignment)
	if f.isGNU() {
		own.align = 0 // not that of its members
		return !told && !f.packed(own, 0) && !f.padded(own)
	}
	return !told || n < t.align
}

// padded reports whether a structure has bytes that belong to no member; a packed structure
// has none. Bytes next to a bitfield prove nothing, because debug information doesn't list
// bitfields without a name.
func (f *frame) padded(t ctype) bool {
	end, bits := int64(0), false // where the members so far end, and whether the last one is a bitfield
	for _, m := range f.members(t) {
		if m.static.Unit() != nil {
			continue
		}
		isBits := m.width != 0 || m.lost
		if m.off > end && !bits && !isBits {
			return true
		}
		next := m.off + m.typ.size
		if m.width != 0 {
			next = m.off + (int64(m.bit)+int64(m.width)+7)/8
		}
		if next > end {
			end, bits = next, isBits
		}
	}
	return t.size > end && !bits
}

// replicate gives all elements of an array the classes of the first one. As in GCC, this
// includes padding.
func replicate(out []class, off, size, elem int64) {
	first, n := off/8, max((elem+off%8+7)/8, 1)
	for i := first + n; i <= (off+size-1)/8 && i < int64(len(out)); i++ {
		if out[i] == noClass {
			out[i] = out[first+(i-first)%n]
		}
	}
}

// scalarAlign returns the alignment that a number needs. If it has less, its structure is
// passed in memory.
func (f *frame) scalarAlign(t ctype) int64 {
	if t.align > 0 && !f.isGNU() {
		return t.align
	}
	return t.size
}

// inCallers returns where debug information places a parameter in the caller's frame, counted
// from the stack pointer at the function's entry. Only the caller can have put it there.
func (f *frame) inCallers(e *debuginfo.Entry) (at int64, ok bool) {
	list, base := e.Locations(dwarf.AttrLocation), f.fn.Locations(dwarf.AttrFrameBase)
	if len(list) != 1 || !list[0].Everywhere() || len(list[0].Expr) == 0 || list[0].Expr[0] != opFbreg || len(base) != 1 || len(base[0].Expr) != 1 {
		return 0, false
	}
	r := dwread.At(list[0].Expr, 1)
	off := r.Sleb()
	if r.Bad || r.Left() > 0 {
		return 0, false
	}
	switch base[0].Expr[0] {
	case opCallFrameCFA:
		at = off + 8
	case opReg0 + spColumn:
		depth := f.frameDepth()
		if code, _, known := f.prologue(); known && code.spKnown && 8-code.sp != depth {
			return 0, false // calls with arguments on the stack lower it more than the prologue does
		}
		at = off + 8 - depth
	case opReg0 + 6: // rbp, when it is pushed
		at = off - 8
	default:
		return 0, false
	}
	return at, at >= 8 && at%8 == 0
}

// entryRegister returns the register in which, by debug information, a parameter is at the
// function's entry. If a parameter has several parts, this is the register of the first.
func (f *frame) entryRegister(e *debuginfo.Entry) (place, bool) {
	for _, p := range f.entryParts(e) {
		if p.off == 0 {
			return p.place, p.place.inRegister()
		}
	}
	return place{}, false
}

// entryParts returns the parts that a parameter has at the function's entry by debug information.
func (f *frame) entryParts(e *debuginfo.Entry) []piece {
	expr, _, ok := e.LocationAt(dwarf.AttrLocation, f.pc)
	if !ok {
		return nil
	}
	x := evaluator{f: f, unit: e.Unit()}
	p, err := x.location(expr)
	switch {
	case err != nil:
		return nil
	case p.kind == inPieces:
		return p.pieces
	}
	return []piece{{place: p}}
}

// inRegister reports whether a place is a register, or computed from one.
func (p place) inRegister() bool {
	return p.kind == isValue && (p.sym.src.Source == fetch.SourceReg || p.isXMM())
}

// beginsIn reports whether a place is, or begins with, a register.
func (p place) beginsIn(r place) bool {
	if p.kind == inPieces && len(p.pieces) > 0 {
		p = p.pieces[0].place
	}
	return p.kind == isValue && p.sym.src.Source == r.sym.src.Source && p.sym.src.Reg == r.sym.src.Reg
}

// besideAligned returns where a parameter lies in its caller's frame, counted from the
// canonical frame address, if GCC aligns the function's own frame. GCC describes the place by
// the register in which the prologue keeps that address, as if the register had it from the
// first instruction on.
func (f *frame) besideAligned(e *debuginfo.Entry) (off int64, ok bool) {
	list := e.Locations(dwarf.AttrLocation)
	if !f.isGNU() || e.Tag() != dwarf.TagFormalParameter || !f.ofFunction(e) || len(list) != 1 || !list[0].Everywhere() || len(list[0].Expr) == 0 {
		return 0, false
	}
	if op := list[0].Expr[0]; op != opBreg0+3 && (op < opBreg0+10 || op > opBreg0+15) || !f.keepsAddress() {
		return 0, false
	}
	r := dwread.At(list[0].Expr, 1)
	off = r.Sleb()
	return off, !r.Bad && r.Left() == 0
}

// keepsAddress reports whether a function's prologue puts the canonical frame address into a
// register and then aligns the stack pointer. The register may be pushed before, other
// instructions may stand between, and another register may take over the address later.
func (f *frame) keepsAddress() bool {
	low, ok := f.fn.EntryPC()
	if !ok {
		return false
	}
	var text []byte
	for _, r := range f.fn.Ranges() {
		if r.Low == low && r.High > low {
			text, _ = f.module.File.Text(symbols.Vaddr(low), int(min(r.High-low, maxAligning))) // without code there is no answer
		}
	}
	below, kept := int64(8), false // how far the stack pointer is below that address
	for len(text) > 0 {
		i, err := insn.Decode(text)
		if err != nil || i.Len == 0 || i.Flags.Any(insn.RelBranch|insn.Ret|insn.Jmp|insn.Call) {
			return false
		}
		code := text[:i.Len]
		op, _ := touches.OperandOf(i, code)
		switch {
		case i.Is(insn.Push):
			below += 8
		case i.Is(insn.LEA) && op.Base == insn.RSP && op.Index == insn.NoReg && op.Disp == below:
			kept = true
		case i.Encoding == insn.Legacy && i.Map == 0 && (i.Opcode == 0x81 || i.Opcode == 0x83) && i.ModRM == 0xe4: // and $-32, %rsp
			return kept
		case i.Is(insn.WritesSP):
			return false
		}
		text = text[i.Len:]
	}
	return false
}

// maxAligning is how many bytes of a function are searched for the instruction that aligns the
// stack pointer.
const maxAligning = 64
