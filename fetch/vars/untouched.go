package vars

import (
	"debug/dwarf"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/probe/insn"
	"kprobe/symbols"
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
}

// slot is a variable's part of the frame, which variables of other blocks may share.
type slot struct {
	span
	of    debuginfo.Ref
	block debuginfo.Entry
	array bool
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
	touches := touched.of(own)
	if touched.unknown || touched.indexed && f.holdsArray(t, 0) || f.takes(touches, own.span, t) {
		return p
	}
	return rest(p, touches, own.span)
}

// of are the touches that may be a variable's: not those within the block of another one
// that shares its place.
func (t *touchedFrame) of(own slot) (list []touch) {
	var others []slot
	for _, s := range t.slots {
		switch {
		case s.of == own.of:
			own.block = s.block
		case s.low < own.high && own.low < s.high:
			others = append(others, s)
		}
	}
	others = slices.DeleteFunc(others, func(s slot) bool { return s.block.Ref() == own.block.Ref() })
	for _, a := range t.list {
		if !slices.ContainsFunc(others, func(s slot) bool {
			within := a.low >= s.low && a.high <= s.high
			// An address that is computed ahead of a loop is that of an array which has no other.
			return within && (holds(s.block, a.pc) || a.taken && s.array && !t.takenWithin(s))
		}) {
			list = append(list, a)
		}
	}
	return list
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

// takes reports whether an address in a variable is computed. Loops over arrays may
// count from an address before the first element, or to one behind the last.
func (f *frame) takes(list []touch, own span, t ctype) bool {
	slack := int64(0)
	if f.holdsArray(t, 0) {
		slack = 64
	}
	return slices.ContainsFunc(list, func(a touch) bool { return a.taken && a.low >= own.low-slack && a.low < own.high+slack })
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

// rest is a place in memory without the bytes that nothing accesses.
func rest(p place, list []touch, own span) place {
	size := own.high - own.low
	there := make([]bool, size)
	for _, a := range list {
		for at := max(a.low, own.low); at < min(a.high, own.high); at++ {
			there[at-own.low] = true
		}
	}
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

// touched looks through the function's code, once.
func (f *frame) touched() *touchedFrame {
	if f.touches == nil {
		f.touches = &touchedFrame{}
		f.touches.look(f)
		f.touches.share(f, f.fn, 0)
	}
	return f.touches
}

// share notes the variables of a block, and of those in it, that have a place in the
// frame all the time.
func (t *touchedFrame) share(f *frame, block debuginfo.Entry, depth int) {
	if depth > maxDepthOfBlocks || len(t.slots) > maxSlots {
		return
	}
	for c := range block.Children() {
		switch c.Tag() {
		case dwarf.TagLexDwarfBlock, dwarf.TagInlinedSubroutine:
			t.share(f, c, depth+1)
		case dwarf.TagVariable:
			list := c.Locations(dwarf.AttrLocation)
			if len(list) != 1 || !list[0].Everywhere() || len(list[0].Expr) == 0 || list[0].Expr[0] != opFbreg {
				continue
			}
			r := dwread.At(list[0].Expr, 1)
			at := r.Sleb()
			if typ, err := f.typeOf(&c); err == nil && typ.size > 0 && r.Left() == 0 && !r.Bad && f.basedOnCFA() {
				t.slots = append(t.slots, slot{span{at, at + typ.size}, c.Ref(), block, typ.kind == kindArray})
			}
		}
	}
}

// basedOnCFA reports a function whose places count from the canonical frame address.
func (f *frame) basedOnCFA() bool {
	base := f.fn.Locations(dwarf.AttrFrameBase)
	return len(base) == 1 && len(base[0].Expr) == 1 && base[0].Expr[0] == opCallFrameCFA
}

// maxSlots bounds the variables of a function that are looked at.
const maxSlots = 4096

func (t *touchedFrame) look(f *frame) {
	size := uint64(0)
	for _, r := range f.fn.Ranges() {
		if size += r.High - r.Low; r.High < r.Low || size > maxTouching {
			t.unknown = true
			return
		}
		code, err := f.module.File.Text(symbols.Vaddr(r.Low), int(r.High-r.Low))
		if err != nil || uint64(len(code)) != r.High-r.Low {
			t.unknown = true
			return
		}
		for at := r.Low; len(code) > 0 && !t.unknown; {
			i, err := insn.Decode(code)
			if err != nil || i.Len == 0 {
				t.unknown = true
				return
			}
			t.instruction(f, i, code[:i.Len], at)
			code, at = code[i.Len:], at+uint64(i.Len)
		}
	}
}

// instruction notes what one does.
func (t *touchedFrame) instruction(f *frame, i insn.Inst, code []byte, at uint64) {
	if i.ModRMOff == 0 || i.Is(insn.Nop) {
		return
	}
	op, ok := operandOf(i, code)
	names := op.base == insn.RSP || op.base == insn.RBP || op.index == insn.RBP
	if !op.memory {
		names = op.base == insn.RSP || op.base == insn.RBP || i.RegField() == insn.RSP || i.RegField() == insn.RBP
	}
	if !names {
		return
	}
	row, known := f.module.File.Unwind().At(at)
	if !known || row.CFA.Kind != unwind.InRegister {
		t.unknown = true // an aligned frame
		return
	}
	reg, _ := dwarfRegister(row.CFA.Reg)
	switch {
	case !op.memory:
		t.copied(i, reg, row.CFA.Off, f.isGNU())
	case op.base == insn.RSP && reg != fetch.SP && f.isGNU(): // arguments of calls, and what has a size at run time
	case op.base == insn.RSP && reg != fetch.SP || !ok:
		t.unknown = true
	case op.base == insn.RBP && reg != fetch.BP && op.index != insn.RBP: // a pointer
	case op.index != insn.NoReg:
		t.indexed = t.indexed || op.base == insn.RSP || reg == fetch.BP
	case i.Is(insn.LEA) && i.RegField() == insn.RSP: // the frame is left
	case i.Is(insn.LEA):
		t.list = append(t.list, touch{span{op.disp - row.CFA.Off, op.disp - row.CFA.Off}, at, true})
	default:
		t.list = append(t.list, touch{span{op.disp - row.CFA.Off, op.disp - row.CFA.Off + accessSize(i)}, at, false})
	}
}

// copied notes what an instruction does with the frame's registers themselves: the frame
// is at a distance off below what reg has.
func (t *touchedFrame) copied(i insn.Inst, reg fetch.Reg, off int64, gnu bool) {
	legacy := i.Encoding == insn.Legacy && i.Map == 0
	from, to := i.RegField(), insn.Reg(i.ModRM&7|i.REX&insn.REXB<<3)
	if i.Opcode == 0x8b {
		from, to = to, from
	}
	is := func(r insn.Reg) bool { return r == insn.RSP && reg == fetch.SP || r == insn.RBP && reg == fetch.BP }
	switch {
	case !legacy || i.Encoding != insn.Legacy:
		// Registers of vectors, or other numbers than these in the field: setcc, movzx of a
		// byte read what no address is.
		if i.Encoding == insn.Legacy && i.Map == 1 && i.Opcode&0xf0 == 0x40 { // cmov
			t.unknown = t.unknown || is(from) || is(to)
		}
	case i.Opcode == 0x89 || i.Opcode == 0x8b:
		if from == insn.RSP && to == insn.RBP || from == insn.RBP && to == insn.RSP {
			return // a frame is made, or is left
		}
		switch {
		case is(from):
			t.list = append(t.list, touch{span{-off, -off}, 0, true})
		case from == insn.RSP && !gnu:
			t.unknown = true // how far it is from the frame's other register is not known
		}
	case i.Opcode == 0x80 || i.Opcode == 0x81 || i.Opcode == 0x83 || i.Opcode >= 0xd8 && i.Opcode <= 0xdf: // add, sub, and of a constant; x87
	case i.Opcode < 0x40 && i.Opcode&7 < 4: // add … cmp of registers
		t.unknown = t.unknown || from == insn.RSP || to == insn.RSP && i.Opcode&^7 != 0x28 || is(from) || is(to)
	case i.Opcode == 0x87: // xchg
		t.unknown = t.unknown || is(from) || is(to)
	}
}

// frameOperand is the operand of ModRM: in memory, at disp from a register, or the
// register base.
type frameOperand struct {
	memory      bool
	base, index insn.Reg
	disp        int64
}

// operandOf reads the operand of ModRM; false where its displacement isn't known.
func operandOf(i insn.Inst, code []byte) (op frameOperand, ok bool) {
	op = frameOperand{base: insn.Reg(i.ModRM&7 | i.REX&insn.REXB<<3), index: insn.NoReg}
	if i.ModRM>>6 == 3 {
		return op, true
	}
	op.memory = true
	if i.Flags.Any(insn.RIPRel) || i.SIBOff != 0 && i.ModRM>>6 == 0 && i.SIB&7 == 5 {
		op.base = insn.NoReg
	} else if i.SIBOff != 0 {
		op.base = insn.Reg(i.SIB&7 | i.REX&insn.REXB<<3)
	}
	if i.SIBOff != 0 {
		if op.index = insn.Reg(i.SIB>>3&7 | i.REX&insn.REXX<<2); op.index == insn.RSP {
			op.index = insn.NoReg
		}
	}
	if i.DispOff != 0 {
		op.disp, ok = i.Disp(code)
	} else {
		ok = true
	}
	return op, ok && (i.Encoding != insn.EVEX || i.DispLen != 1)
}

// accessSize is how many bytes an instruction accesses in memory, or more.
func accessSize(i insn.Inst) int64 {
	const atMost = 64
	general := int64(4)
	switch {
	case i.REX&insn.REXW != 0:
		general = 8
	case i.Prefixes&insn.PrefixOpSize != 0:
		general = 2
	}
	switch {
	case i.Encoding != insn.Legacy || i.Map > 1 || i.Is(insn.RepString):
		return atMost
	case i.Map == 1:
		return secondMapSize(i, general)
	case i.Opcode < 0x40:
		if i.Opcode&1 == 0 {
			return 1
		}
		return general
	}
	switch i.Opcode {
	case 0x80, 0x84, 0x86, 0x88, 0x8a, 0xc0, 0xc6, 0xd0, 0xd2, 0xf6, 0xfe:
		return 1
	case 0x63:
		return 4
	case 0x69, 0x6b, 0x81, 0x83, 0x85, 0x87, 0x89, 0x8b, 0xc1, 0xc7, 0xd1, 0xd3, 0xf7:
		return general
	case 0xff, 0x8f:
		if i.Prefixes&insn.PrefixOpSize == 0 { // calls, jumps and pushes have 8
			return 8
		}
		return general
	case 0xd8, 0xda:
		return 4
	case 0xd9:
		if i.ModRM>>3&7 <= 3 {
			return 4
		}
		return 28
	case 0xdb:
		if i.ModRM>>3&7 >= 5 {
			return 10
		}
		return 4
	case 0xdc:
		return 8
	case 0xdd:
		if i.ModRM>>3&7 <= 3 {
			return 8
		}
	case 0xde:
		return 2
	case 0xdf:
		switch i.ModRM >> 3 & 7 {
		case 4, 6:
			return 10
		case 5, 7:
			return 8
		}
		return 2
	}
	return atMost
}

// secondMapSize is accessSize of what begins with 0F.
func secondMapSize(i insn.Inst, general int64) int64 {
	single, double := i.Prefixes&insn.PrefixRep != 0, i.Prefixes&insn.PrefixRepne != 0
	switch op := i.Opcode; {
	case op >= 0x90 && op <= 0x9f, op == 0xb6, op == 0xbe, op == 0xb0, op == 0xc0: // setcc, movzx and movsx of bytes
		return 1
	case op == 0xb7, op == 0xbf:
		return 2
	case op >= 0x40 && op <= 0x4f, op == 0xaf, op == 0xb1, op == 0xc1, op == 0xbc, op == 0xbd, op == 0xa3, op == 0xab, op == 0xba:
		return general
	case op == 0x10, op == 0x11, op == 0x51, op >= 0x58 && op <= 0x5f:
		switch {
		case single:
			return 4
		case double:
			return 8
		}
		return 16
	case op == 0x2a && (single || double), op == 0x6e, op == 0x7e && !single:
		return max(general, 4)
	case op == 0x2c, op == 0x2d, op == 0x2e, op == 0x2f:
		if single || op >= 0x2e && i.Prefixes&insn.PrefixOpSize == 0 {
			return 4
		}
		return 8
	case op == 0x12, op == 0x13, op == 0x16, op == 0x17, op == 0xd6, op == 0x7e:
		return 8
	}
	return 64
}
