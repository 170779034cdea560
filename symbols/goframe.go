package symbols

import (
	"bytes"
	"encoding/binary"
)

// goFrameSize is the distance from the stack pointer to the return address in
// a Go function.
func (f *File) goFrameSize(v Vaddr) (uint64, bool) {
	t := f.goFunctions()
	return t.frameSize(v)
}

// goOutermost reports whether a goroutine's stack ends at an address: in
// runtime.goexit, to which the first function of a goroutine returns. Call frame
// information doesn't say so on amd64: by it goexit has a caller, and what lies
// there on a stack that was used before may look like one.
func (f *File) goOutermost(v Vaddr) bool {
	t := f.goFunctions()
	return t.named(v, "runtime.goexit")
}

// find returns where the description of the function around an address begins in
// the table of functions, and where the function does, as a distance from text.
func (t *goFuncs) find(v Vaddr) (at uint64, start uint32, ok bool) {
	if t.n == 0 || v < t.text || uint64(v-t.text) > 1<<32 {
		return 0, 0, false
	}
	le, tab, want := binary.LittleEndian, t.tab, uint32(v-t.text)
	lo, hi := uint64(0), t.n
	for lo < hi {
		if mid := (lo + hi) / 2; le.Uint32(tab[mid*8:]) <= want {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || lo == t.n && want >= le.Uint32(tab[t.n*8:]) {
		return 0, 0, false
	}
	// struct _func: entryoff, nameoff, args, deferreturn, pcsp.
	at = uint64(le.Uint32(tab[(lo-1)*8+4:]))
	return at, le.Uint32(tab[(lo-1)*8:]), at+20 <= uint64(len(tab))
}

// frameSize looks up the size of the frame at an address (runtime/symtab.go, pcsp).
func (t *goFuncs) frameSize(v Vaddr) (uint64, bool) {
	at, start, ok := t.find(v)
	if !ok {
		return 0, false
	}
	pcsp, size := uint64(binary.LittleEndian.Uint32(t.tab[at+16:])), uint64(len(t.b))
	if pcsp == 0 || t.pcs > size || t.pcs+pcsp >= size {
		return 0, false
	}
	return t.value(t.b[t.pcs+pcsp:], start, uint32(v-t.text))
}

// named reports whether the function around an address has a name.
func (t *goFuncs) named(v Vaddr, name string) bool {
	at, _, ok := t.find(v)
	if !ok {
		return false
	}
	off := t.names + uint64(binary.LittleEndian.Uint32(t.tab[at+4:]))
	return off <= uint64(len(t.b)) && bytes.HasPrefix(t.b[off:], append([]byte(name), 0))
}

// value runs a table of values by address: pairs of a difference of the value,
// zigzag, and one of the address; a zero difference behind the first ends it.
func (t *goFuncs) value(p []byte, pc, want uint32) (uint64, bool) {
	size, first := int32(-1), true
	for {
		d, n := binary.Uvarint(p)
		if n <= 0 || d == 0 && !first {
			return 0, false
		}
		p, first = p[n:], false
		if d&1 != 0 {
			size += int32(^(d >> 1))
		} else {
			size += int32(d >> 1)
		}
		by, n := binary.Uvarint(p)
		if n <= 0 {
			return 0, false
		}
		p = p[n:]
		if pc += uint32(by * t.quant); want < pc {
			return uint64(size), size >= 0
		}
	}
}
