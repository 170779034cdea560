package vars

import (
	"encoding/binary"
	"slices"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// Go's compiler describes two things in the same form, as an address without a size: a variable
// that it keeps in memory, and one part of a variable that it has spilled to memory.

// maxGoFields is the largest number of fields, and of words, with which Go's compiler still
// splits a structure into parts (cmd/compile/internal/ssa, CanSSA).
const maxGoFields = 4

// staysInMemory reports whether Go's compiler keeps variables of a type whole.
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

// hasPieces reports whether a variable's location has pieces at some address. Where it has
// none, the whole variable is meant, as for parameters of unoptimized code after the prologue.
func (f *frame) hasPieces(e *debuginfo.Entry, list []debuginfo.Location) bool {
	return slices.ContainsFunc(list, func(l debuginfo.Location) bool {
		x := evaluator{f: f, unit: e.Unit()}
		p, err := x.location(l.Expr)
		return err == nil && p.kind == inPieces
	})
}

// usedWhole reports whether the function's code takes the address of a place on the stack, or
// accesses 16 bytes of it at once. Then the place holds a variable, not a spilled register.
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

// usesWhole looks for lea OFF(%rsp), and for moves of vectors to or from that address.
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

// isScalar reports whether an instruction's prefixes make it move a single number.
func isScalar(before []byte) bool {
	n := len(before)
	if n > 0 && before[n-1]&0xf0 == 0x40 {
		n--
	}
	return n > 0 && (before[n-1] == 0xf2 || before[n-1] == 0xf3)
}

// ofStack returns the distance from the stack pointer of an operand in memory.
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
