package vars

import "debug/dwarf"

// class is a class of the psABI's classification (x86-64, 3.2.3).
type class uint8

const (
	noClass class = iota
	classInteger
	classSSE
	classSSEUp // the upper half of the register before
	classMemory
	classUnknown // debug information doesn't tell
)

// classify returns the classes of a value's eightbytes: one or two, or classMemory or
// classUnknown alone.
func (f *frame) classify(t ctype) []class {
	memory := []class{classMemory}
	switch t.kind {
	case kindInt, kindUint, kindChar, kindBool, kindPointer, kindReference, kindEnum:
		return []class{classInteger}
	case kindWideInt, kindMethod:
		return []class{classInteger, classInteger}
	case kindFloat:
		return []class{classSSE}
	case kindWideFloat:
		if !isX87(t) {
			return []class{classSSE, classSSEUp}
		}
		return memory
	case kindStruct, kindArray, kindComplex:
		if t.size == 0 && t.kind == kindStruct && !t.entry.Flag(dwarf.AttrDeclaration) {
			return nil // C's empty structure
		}
		if t.size <= 0 || t.size > 16 {
			return memory
		}
		out := make([]class, (t.size+7)/8)
		f.doubtful = false
		if !f.classifyParts(t, 0, out, 0) {
			return memory
		}
		if f.doubtful {
			return []class{classUnknown}
		}
		return out
	}
	return memory
}

// classifyParts merges the classes of a structure's members. ok is false if one of them forces
// the whole structure into memory.
func (f *frame) classifyParts(t ctype, off int64, out []class, depth int) bool {
	if f.tooDeep(depth) || off < 0 || off >= int64(8*len(out)) {
		return false
	}
	if t.atomic && !f.isGNU() {
		return false // of _Atomic members LLVM knows no class
	}
	switch t.kind {
	case kindStruct:
		for _, m := range f.members(t) {
			switch {
			case m.static.Unit() != nil, m.typ.size == 0 && f.isRustFunc(): // Rust has some at the end
			case m.lost:
				first, last := (off+m.off)/8, (off+m.off+m.typ.size)/8 // it begins within its first byte, or at its start
				if first < 0 || first >= int64(len(out)) {
					return false
				}
				if out[first] = classInteger; last < int64(len(out)) && last > first && out[last] != classInteger {
					out[last] = classInteger
					f.doubtful = f.doubtful || (off+m.off+m.typ.size)%8 == 0
				}
			case m.width != 0: // wherever it lies
				first := (off+m.off)*8 + int64(m.bit)
				for i := first / 64; i <= (first+int64(m.width)-1)/64; i++ {
					if i < 0 || i >= int64(len(out)) {
						return false
					}
					out[i] = classInteger
				}
			case !f.classifyParts(m.typ, off+m.off, out, depth+1) || !m.inherited && f.misaligned(m.typ, off+m.off):
				return false
			}
		}
		return true
	case kindArray:
		if isVector(t) {
			return classifyVector(t, off, out)
		}
		elem, stride := f.element(t)
		if stride <= 0 || t.count > 16 {
			return false
		}
		for i := range t.count {
			if !f.classifyParts(elem, off+i*stride, out, depth+1) {
				return false
			}
		}
		if f.isGNU() {
			replicate(out, off, t.size, elem.size)
		}
		return true
	case kindWideFloat:
		return !isX87(t) && classifyVector(t, off, out)
	case kindUnknown, kindVoid, kindFunc:
		return false
	case kindWideInt, kindMethod:
		out[0], out[len(out)-1] = classInteger, classInteger
		return off == 0
	case kindComplex:
		for i := off / 8; i < (off+t.size+7)/8 && int(i) < len(out); i++ {
			if out[i] == noClass {
				out[i] = classSSE
			}
		}
		return off%(t.size/2) == 0
	}
	if t.size > 0 && off%f.scalarAlign(t) != 0 { // packed
		if f.isGNU() || f.isRustFunc() || !mayBeBits(t.kind) {
			return false
		}
		f.doubtful = true // LLVM describes a bitfield as wide as its type the same way, and that may lie at any byte
	}
	c := classInteger
	if t.kind == kindFloat {
		c = classSSE
	}
	if i := off / 8; out[i] != classInteger {
		out[i] = c
	}
	return true
}

func isUnknown(classes []class) bool { return len(classes) > 0 && classes[0] == classUnknown }

func isMemory(classes []class) bool { return len(classes) > 0 && classes[0] == classMemory }
