package vars

import (
	"debug/dwarf"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/fetch/vars/touches"
	"kprobe/probe/insn"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/dwread"
	"kprobe/symbols/unwind"
)

// Parts of the frame that no instruction touches
//
// A compiler that keeps a structure in a function's frame may keep some members elsewhere, or
// nowhere, and omit the stores to them. GCC and LLVM don't track memory, so debug information
// still says that the whole structure is in the frame. Bytes have no value if no instruction of
// the function reads them, writes them or takes their address.

// touchedFrame is what a function's instructions do to its frame, and the variables that are there.
type touchedFrame struct {
	touches.Touches
	slots []slot
}

// slot is a variable's part of the frame. Variables of other blocks may share it.
type slot struct {
	touches.Span
	of     debuginfo.Ref
	block  debuginfo.Entry
	around []debuginfo.Ref // the blocks around block, outermost first
	array  bool
}

// maxTouching limits how much code of a function is decoded.
const maxTouching = 1 << 16

// written removes from a variable's place the parts that no instruction touches. It does so if
// debug information gives the variable one place in the frame, from the first instruction to
// the last.
func (f *frame) written(e *debuginfo.Entry, p place, list []debuginfo.Location) place {
	if len(list) != 1 || !list[0].Everywhere() || !f.inStack(p) || f.isGoFunc() || f.isRustFunc() || !f.leavesStoresOut() {
		return p
	}
	t, err := f.typeOf(e)
	if err != nil || t.kind != kindStruct && t.kind != kindComplex || t.size <= 0 || t.size > 1<<16 {
		return p
	}
	row, ok := f.module.File.Unwind().At(f.pc)
	if !ok || row.CFA.Kind != unwind.InRegister {
		return p
	}
	if reg, known := dwarfRegister(row.CFA.Reg); !known || reg != p.sym.src.Reg {
		return p
	}
	off := -row.CFA.Off
	if len(p.sym.steps) > 0 {
		off += int64(p.sym.steps[0].Imm)
	}
	if off >= 0 { // the place is the caller's, who has filled it in
		return p
	}
	own := slot{Span: touches.Span{Low: off, High: off + t.size}, of: e.Ref()}
	touched := f.touched()
	if touched.Unknown || touched.Indexed && f.holdsArray(t, 0) {
		return p
	}
	found, object := touched.of(own)
	if f.takes(found, object, touched.slots, t) {
		return p
	}
	return f.rest(p, found, own.Span, t)
}

// of returns the touches that may belong to a variable. It leaves out those within the block
// of another variable that shares the place, unless that block is around the variable's own.
// object is the variable's part of the frame, extended to a variable of the same block that
// contains it; C++ describes structured bindings so.
func (t *touchedFrame) of(own slot) (list []touches.Touch, object touches.Span) {
	i := slices.IndexFunc(t.slots, func(s slot) bool { return s.of == own.of })
	if i < 0 { // its block isn't known
		return t.List, own.Span
	}
	own, object = t.slots[i], own.Span
	var others []slot
	for _, s := range t.slots {
		switch {
		case s.Low >= own.High || own.Low >= s.High || slices.Contains(own.around, s.block.Ref()):
		case s.block.Ref() == own.block.Ref():
			object = touches.Span{Low: min(object.Low, s.Low), High: max(object.High, s.High)}
		default:
			others = append(others, s)
		}
	}
	for _, a := range t.List {
		if !slices.ContainsFunc(others, func(s slot) bool {
			within := a.Low >= s.Low && a.High <= s.High
			// An address computed before a loop belongs to an array whose address is not computed
			// in its own block. But in the variable's own block the address is the variable's,
			// unless the array's block lies within that block.
			ahead := !holds(own.block, a.PC) || slices.Contains(s.around, own.block.Ref())
			return within && (holds(s.block, a.PC) || a.Taken && s.array && ahead && !t.takenWithin(s))
		}) {
			list = append(list, a)
		}
	}
	return list, object
}

// takenWithin reports whether instructions in the block of a variable compute its address.
func (t *touchedFrame) takenWithin(s slot) bool {
	return slices.ContainsFunc(t.List, func(a touches.Touch) bool { return a.Taken && a.Low < s.High && a.Low >= s.Low && holds(s.block, a.PC) })
}

// holds reports whether an instruction belongs to a block.
func holds(block debuginfo.Entry, pc uint64) bool {
	return slices.ContainsFunc(block.Ranges(), func(r debuginfo.Range) bool { return r.Low <= pc && pc < r.High })
}

// leavesStoresOut reports whether the compiler may have omitted stores in the function.
func (f *frame) leavesStoresOut() bool {
	u := f.fn.Unit()
	if f.isGNU() {
		made := u.Producer()
		return strings.Contains(made, " -O") && !strings.Contains(made, " -O0")
	}
	return f.optimized(f.fn, 0)
}

// takes reports whether the function computes an address in a variable. A loop over an array
// may count from any address before or after it. So for an array, every computed address
// counts, except the start of another variable, and except the end of the array below, up to
// which a loop counts.
func (f *frame) takes(list []touches.Touch, own touches.Span, slots []slot, t ctype) bool {
	array := f.holdsArray(t, 0)
	return slices.ContainsFunc(list, func(a touches.Touch) bool {
		within := a.Low >= own.Low && a.Low < own.High
		if a.Bound && slices.ContainsFunc(slots, func(s slot) bool { return s.array && s.High == a.Low }) {
			return false
		}
		return a.Taken && (within || array && !slices.ContainsFunc(slots, func(s slot) bool { return s.Low == a.Low }))
	})
}

// holdsArray reports whether a structure contains an array.
func (f *frame) holdsArray(t ctype, depth int) bool {
	if t.kind == kindArray || f.tooDeep(depth) {
		return true
	}
	return t.kind == kindStruct && slices.ContainsFunc(f.members(t), func(m member) bool {
		return m.static.Unit() == nil && f.holdsArray(m.typ, depth+1)
	})
}

// rest returns a place in memory without the bytes that nothing accesses. Programs themselves
// leave the end of an array unset, as after a short text, so an array is kept as a whole.
func (f *frame) rest(p place, list []touches.Touch, own touches.Span, t ctype) place {
	size := own.High - own.Low
	there := make([]bool, size)
	for _, a := range list {
		for at := max(a.Low, own.Low); at < min(a.High, own.High); at++ {
			there[at-own.Low] = true
		}
	}
	f.wholeArrays(there, t, 0)
	if !slices.Contains(there, false) {
		return p
	}
	out := place{kind: inPieces, pieces: []piece{}}
	for at := int64(0); at < size; {
		end := at
		for end < size && there[end] == there[at] {
			end++
		}
		if there[at] {
			q := p
			q.sym = p.sym.add(at)
			out.pieces = append(out.pieces, piece{at, end - at, q})
		}
		at = end
	}
	return out
}

// wholeArrays marks all bytes of arrays of which at least one byte is there.
func (f *frame) wholeArrays(there []bool, t ctype, depth int) {
	if f.tooDeep(depth) {
		return
	}
	for _, m := range f.members(t) {
		at, size := m.off, m.typ.size
		if m.static.Unit() != nil || at < 0 || size <= 0 || at+size > int64(len(there)) {
			continue
		}
		part := there[at : at+size]
		switch {
		case m.typ.kind == kindStruct:
			f.wholeArrays(part, m.typ, depth+1)
		case m.typ.kind == kindArray && slices.Contains(part, true):
			for i := range part {
				part[i] = true
			}
		}
	}
}

// touched examines the function's code, once.
func (f *frame) touched() *touchedFrame {
	if f.touches == nil {
		f.touches = &touchedFrame{}
		f.touches.look(f)
		f.touches.share(f, f.fn, nil)
	}
	return f.touches
}

// look notes what the function's instructions do.
func (t *touchedFrame) look(f *frame) {
	size := uint64(0)
	how := touches.Function{CFA: f.frameAt, GNU: f.isGNU()}
	for _, r := range f.fn.Ranges() {
		if size += r.High - r.Low; r.High < r.Low || size > maxTouching {
			t.Unknown = true
			return
		}
		code, err := f.module.File.Text(symbols.Vaddr(r.Low), int(r.High-r.Low))
		if err != nil || uint64(len(code)) != r.High-r.Low {
			t.Unknown = true
			return
		}
		t.Look(how, code, r.Low)
	}
}

// frameAt is touches.Function's CFA.
func (f *frame) frameAt(pc uint64) (reg insn.Reg, off int64, ok bool) {
	row, known := f.module.File.Unwind().At(pc)
	if !known || row.CFA.Kind != unwind.InRegister {
		return insn.NoReg, 0, false
	}
	reg = insn.NoReg
	switch r, _ := dwarfRegister(row.CFA.Reg); r {
	case fetch.SP:
		reg = insn.RSP
	case fetch.BP:
		reg = insn.RBP
	}
	return reg, row.CFA.Off, true
}

// share notes the variables of a block, and of the blocks in it, that have one place in the
// frame all the time.
func (t *touchedFrame) share(f *frame, block debuginfo.Entry, around []debuginfo.Ref) {
	if len(around) > maxDepthOfBlocks || len(t.slots) > maxSlots {
		return
	}
	for c := range block.Children() {
		switch c.Tag() {
		case dwarf.TagLexDwarfBlock, dwarf.TagInlinedSubroutine:
			t.share(f, c, append(slices.Clip(around), block.Ref()))
		case dwarf.TagSubprogram:
			// GNU C gives a nested function the address of everything that it uses in this frame.
			t.Unknown = t.Unknown || f.fn.Unit().Language().IsC() && !c.Flag(dwarf.AttrDeclaration)
		case dwarf.TagVariable:
			list := c.Locations(dwarf.AttrLocation)
			if len(list) != 1 || !list[0].Everywhere() || !f.basedOnCFA() {
				continue
			}
			at, ok := fromFrameBase(list[0].Expr)
			if typ, err := f.typeOf(&c); ok && err == nil && typ.size > 0 {
				t.slots = append(t.slots, slot{touches.Span{Low: at, High: at + typ.size}, c.Ref(), block, around, typ.kind == kindArray})
			}
		}
	}
}

// fromFrameBase returns the distance from the frame's base that an expression describes.
func fromFrameBase(expr []byte) (at int64, ok bool) {
	if len(expr) == 0 || expr[0] != opFbreg {
		return 0, false
	}
	r := dwread.At(expr, 1)
	at = r.Sleb()
	for r.Left() > 0 && !r.Bad {
		if r.U8() != opPlusUconst {
			return 0, false
		}
		at += int64(r.Uleb())
	}
	return at, !r.Bad
}

// basedOnCFA reports whether the function's places count from the canonical frame address.
func (f *frame) basedOnCFA() bool {
	base := f.fn.Locations(dwarf.AttrFrameBase)
	return len(base) == 1 && len(base[0].Expr) == 1 && base[0].Expr[0] == opCallFrameCFA
}

// maxSlots limits the variables of a function that are examined.
const maxSlots = 4096
