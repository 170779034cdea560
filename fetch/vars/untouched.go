package vars

import (
	"debug/dwarf"
	"slices"
	"strings"

	"kprobe/probe/insn"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/dwread"
	"kprobe/symbols/unwind"
)

// Parts of the frame that no instruction touches
//
// A compiler that keeps a structure in its frame may keep some of its members elsewhere,
// or nowhere, and leave out the stores to them. Debug information says all the same that
// the whole structure is in the frame: GCC and LLVM don't track memory. Bytes that no
// instruction of the function reads, writes or takes the address of have no value.

// span is a part of the frame, from low to high, by distances from the canonical frame
// address.
type span struct{ low, high int64 }

// touch is what an instruction does to the frame: it accesses a part, or computes its
// address for others to access by.
type touch struct {
	span
	pc    uint64
	taken bool
}

// touchedFrame is what the instructions of a function do to its frame.
type touchedFrame struct {
	list    []touch
	indexed bool // there is one that may touch any array
	unknown bool // there is an instruction that may touch anything
	slots   []slot
	copies  map[insn.Reg]int64 // registers that got an address in the frame from its register, and which
}

// slot is a variable's part of the frame, which variables of other blocks may share.
type slot struct {
	span
	of     debuginfo.Ref
	block  debuginfo.Entry
	around []debuginfo.Ref // the blocks around block, from the outermost
	array  bool
}

// maxTouching bounds the code of a function that is decoded.
const maxTouching = 1 << 16

// written takes from the place of a variable, which debug information has in the frame
// from the first instruction to the last, the parts that no instruction touches.
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
	if off >= 0 { // the caller has filled it in
		return p
	}
	own := slot{span: span{off, off + t.size}, of: e.Ref()}
	touched := f.touched()
	if touched.unknown || touched.indexed && f.holdsArray(t, 0) {
		return p
	}
	touches, object := touched.of(own)
	if f.takes(touches, object, touched.slots, t) {
		return p
	}
	return f.rest(p, touches, own.span, t)
}

// of are the touches that may be a variable's: not those within the block of another one
// that shares its place, unless that block is around the variable's own. object is the
// variable's part of the frame, with that of another variable in its block which it is a
// part of: C++ has structured bindings so.
func (t *touchedFrame) of(own slot) (list []touch, object span) {
	i := slices.IndexFunc(t.slots, func(s slot) bool { return s.of == own.of })
	if i < 0 { // which block it is in is not known
		return t.list, own.span
	}
	own, object = t.slots[i], own.span
	var others []slot
	for _, s := range t.slots {
		switch {
		case s.low >= own.high || own.low >= s.high || slices.Contains(own.around, s.block.Ref()):
		case s.block.Ref() == own.block.Ref():
			object = span{min(object.low, s.low), max(object.high, s.high)}
		default:
			others = append(others, s)
		}
	}
	for _, a := range t.list {
		if !slices.ContainsFunc(others, func(s slot) bool {
			within := a.low >= s.low && a.high <= s.high
			// An address that is computed ahead of a loop is that of an array which has no other.
			// Code of the variable's own block has the variable's address, unless the array is
			// in a block within that one.
			ahead := !holds(own.block, a.pc) || slices.Contains(s.around, own.block.Ref())
			return within && (holds(s.block, a.pc) || a.taken && s.array && ahead && !t.takenWithin(s))
		}) {
			list = append(list, a)
		}
	}
	return list, object
}

// takenWithin reports whether instructions in the block of a variable compute its address.
func (t *touchedFrame) takenWithin(s slot) bool {
	return slices.ContainsFunc(t.list, func(a touch) bool { return a.taken && a.low < s.high && a.low >= s.low && holds(s.block, a.pc) })
}

// holds reports code of a block.
func holds(block debuginfo.Entry, pc uint64) bool {
	return slices.ContainsFunc(block.Ranges(), func(r debuginfo.Range) bool { return r.Low <= pc && pc < r.High })
}

// leavesStoresOut reports a function whose compiler may have left stores out.
func (f *frame) leavesStoresOut() bool {
	u := f.fn.Unit()
	if f.isGNU() {
		made := u.Producer()
		return strings.Contains(made, " -O") && !strings.Contains(made, " -O0")
	}
	return f.optimized(f.fn, 0)
}

// takes reports whether an address in a variable is computed. Loops over an array may
// count from any address before or behind it, so for an array only an address at which
// another variable begins is not taken for the array's.
func (f *frame) takes(list []touch, own span, slots []slot, t ctype) bool {
	array := f.holdsArray(t, 0)
	return slices.ContainsFunc(list, func(a touch) bool {
		within := a.low >= own.low && a.low < own.high
		return a.taken && (within || array && !slices.ContainsFunc(slots, func(s slot) bool { return s.low == a.low }))
	})
}

// holdsArray reports a structure with an array in it.
func (f *frame) holdsArray(t ctype, depth int) bool {
	if t.kind == kindArray || f.tooDeep(depth) {
		return true
	}
	return t.kind == kindStruct && slices.ContainsFunc(f.members(t), func(m member) bool {
		return m.static.Unit() == nil && f.holdsArray(m.typ, depth+1)
	})
}

// rest is a place in memory without the bytes that nothing accesses. Programs leave the
// end of an array unset by themselves, as that of a text is, so an array is there whole.
func (f *frame) rest(p place, list []touch, own span, t ctype) place {
	size := own.high - own.low
	there := make([]bool, size)
	for _, a := range list {
		for at := max(a.low, own.low); at < min(a.high, own.high); at++ {
			there[at-own.low] = true
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

// wholeArrays marks the arrays of which a byte is there.
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

// touched looks through the function's code, once.
func (f *frame) touched() *touchedFrame {
	if f.touches == nil {
		f.touches = &touchedFrame{copies: map[insn.Reg]int64{}}
		f.touches.look(f)
		f.touches.share(f, f.fn, nil)
	}
	return f.touches
}

// share notes the variables of a block, and of those in it, that have a place in the
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
			// A nested function of GNU C gets the address of all that it uses of this frame.
			t.unknown = t.unknown || f.fn.Unit().Language().IsC() && !c.Flag(dwarf.AttrDeclaration)
		case dwarf.TagVariable:
			list := c.Locations(dwarf.AttrLocation)
			if len(list) != 1 || !list[0].Everywhere() || !f.basedOnCFA() {
				continue
			}
			at, ok := fromFrameBase(list[0].Expr)
			if typ, err := f.typeOf(&c); ok && err == nil && typ.size > 0 {
				t.slots = append(t.slots, slot{span{at, at + typ.size}, c.Ref(), block, around, typ.kind == kindArray})
			}
		}
	}
}

// fromFrameBase is the distance from the frame's base that an expression is.
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

// basedOnCFA reports a function whose places count from the canonical frame address.
func (f *frame) basedOnCFA() bool {
	base := f.fn.Locations(dwarf.AttrFrameBase)
	return len(base) == 1 && len(base[0].Expr) == 1 && base[0].Expr[0] == opCallFrameCFA
}

// maxSlots bounds the variables of a function that are looked at.
const maxSlots = 4096
