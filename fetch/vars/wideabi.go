package vars

import (
	"debug/dwarf"
	"strings"

	"kprobe/fetch"
)

// Values that are passed in registers of more than 8 bytes: GNU's vectors and __float128 take one
// xmm register each, and results of type long double are on the x87's stack.

// attrGNUVector marks array types that are vectors.
const attrGNUVector dwarf.Attr = 0x2107

func isVector(t ctype) bool {
	return t.kind == kindArray && t.entry.Unit() != nil && t.entry.Flag(attrGNUVector)
}

// isX87 tells a long double from a __float128.
func isX87(t ctype) bool { return t.kind == kindWideFloat && !strings.Contains(t.entry.Name(), "128") }

// classifyVector sets the classes of the eightbytes of a vector or a __float128.
func classifyVector(t ctype, off int64, out []class) bool {
	if t.size != 8 && t.size != 16 || off%t.size != 0 || off+t.size > int64(8*len(out)) {
		return false
	}
	at := out[off/8:]
	if at[0] == noClass {
		at[0] = classSSE
	}
	if t.size == 16 && at[1] == noClass {
		at[1] = classSSEUp
	}
	return true
}

// isWideVector reports whether a type is a vector of more than 16 bytes, or contains one.
// Whether it is passed in memory or in a register depends on the instructions that the
// compiler was allowed to use.
func (f *frame) isWideVector(t ctype, depth int) bool {
	switch {
	case t.size <= 16 || t.size > 64 || f.tooDeep(depth):
	case t.kind == kindArray:
		return isVector(t)
	case t.kind == kindStruct:
		for _, m := range f.members(t) {
			if m.static.Unit() == nil && m.typ.size == t.size && f.isWideVector(m.typ, depth+1) {
				return true
			}
		}
	}
	return false
}

// holdsX87 reports whether a type is a long double, or consists of nothing else.
func (f *frame) holdsX87(t ctype, depth int) bool {
	switch {
	case t.size != 16 || f.tooDeep(depth):
	case t.kind == kindWideFloat:
		return isX87(t)
	case t.kind == kindArray && t.count == 1:
		elem, _ := f.element(t)
		return f.holdsX87(elem, depth+1)
	case t.kind == kindStruct && !f.byReference(t):
		found := false
		for _, m := range f.members(t) {
			if m.static.Unit() != nil {
				continue
			}
			if m.off != 0 || m.width != 0 || !f.holdsX87(m.typ, depth+1) && m.typ.size != 0 {
				return false
			}
			found = found || m.typ.size != 0
		}
		return found
	}
	return false
}

// x87 returns a number in st(n), at off of a value.
func x87(n int, off int64) []piece {
	return []piece{{off, 8, inVector(16+n, 0)}, {off + 8, 8, inVector(16+n, 8)}}
}

func inVector(n int, off int64) place {
	return place{kind: isValue, sym: sym{src: fetch.Chain{Source: fetch.SourceVector, Reg: fetch.Reg(n), Off: off}}}
}

// vectorHalf returns the upper half of an xmm register.
func vectorHalf(n int) place { return inVector(n, 8) }

// isXMM reports whether a place is an xmm register that holds all of a value.
func (p place) isXMM() bool {
	return p.kind == isValue && p.sym.src.Source == fetch.SourceXMM && len(p.sym.steps) == 0
}
