package vars

import (
	"encoding/binary"
	"slices"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// Go's compiler gives a variable that it keeps in memory, and one part of a variable
// that it has spilled there, locations of the same form: an address without a size.

// maxGoFields is the number of fields up to which Go's compiler takes a structure apart,
// and of the words that it may have (cmd/compile/internal/ssa, CanSSA).
const maxGoFields = 4

// staysInMemory reports a type whose variables Go's compiler doesn't take apart.
func (f *frame) staysInMemory(t ctype) bool { return f.notTakenApart(t, 0) }

func (f *frame) notTakenApart(t ctype, depth int) bool {
	switch {
	case depth > maxNested || t.size > maxGoFields*8:
		return true
	case t.size == 0:
		return false
	case t.kind == kindArray:
		elem, _ := f.element(t)
		return t.count > 1 || f.notTakenApart(elem, depth+1)
	case t.kind == kindStruct:
		list := f.members(t)
		return len(list) > maxGoFields || slices.ContainsFunc(list, func(m member) bool { return f.notTakenApart(m.typ, depth+1) })
	}
	return false
}

// hasPieces reports a variable whose location has pieces somewhere: where it has none
// all of it is meant, as of parameters of unoptimized code behind the prologue.
func (f *frame) hasPieces(e *debuginfo.Entry, list []debuginfo.Location) bool {
	return slices.ContainsFunc(list, func(l debuginfo.Location) bool {
		x := evaluator{f: f, unit: e.Unit()}
		p, err := x.location(l.Expr)
		return err == nil && p.kind == inPieces
	})
}

// usedWhole reports a place on the stack that the function's code takes the address of,
// or reads or writes 16 bytes of: it is a variable's, and none that a register is
// spilled to.
func (f *frame) usedWhole(p place) bool {
	if p.sym.src.Source != fetch.SourceReg || p.sym.src.Reg != fetch.SP || len(p.sym.steps) > 1 {
		return false
	}
	off := int64(0)
	if len(p.sym.steps) == 1 {
		if s := p.sym.steps[0]; s.Op != fetch.StepAdd || s.FromReg {
			return false
		} else {
			off = int64(s.Imm)
		}
	}
	for _, r := range f.fn.Ranges() {
		if r.High-r.Low > maxLoopCode {
			continue
		}
		if code, err := f.module.File.Text(symbols.Vaddr(r.Low), int(r.High-r.Low)); err == nil && usesWhole(code, off) {
			return true
		}
	}
	return false
}

// usesWhole looks for lea OFF(%rsp), and for moves of vectors from or to there.
func usesWhole(code []byte, off int64) bool {
	for i := 1; i < len(code); i++ {
		switch c := code[i]; {
		case c == 0x8d && code[i-1]&0xf8 == 0x48: // lea
		case (c == 0x10 || c == 0x11) && code[i-1] == 0x0f && !isScalar(code[:i-1]): // movups
		case (c == 0x6f || c == 0x7f) && i > 1 && code[i-2] == 0xc5: // vmovdqu
		default:
			continue
		}
		if at, ok := ofStack(code[i+1:]); ok && at == off {
			return true
		}
	}
	return false
}

// isScalar reports the prefixes of an instruction that moves one number.
func isScalar(before []byte) bool {
	n := len(before)
	if n > 0 && before[n-1]&0xf0 == 0x40 {
		n--
	}
	return n > 0 && (before[n-1] == 0xf2 || before[n-1] == 0xf3)
}

// ofStack is the distance from the stack pointer that an operand in memory has.
func ofStack(operand []byte) (off int64, ok bool) {
	if len(operand) < 6 || operand[0]&7 != 4 || operand[1] != 0x24 {
		return 0, false
	}
	switch operand[0] >> 6 {
	case 0:
		return 0, true
	case 1:
		return int64(int8(operand[2])), true
	case 2:
		return int64(int32(binary.LittleEndian.Uint32(operand[2:]))), true
	}
	return 0, false
}
