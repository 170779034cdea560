package symbols

import "encoding/binary"

// goFrameSize is the distance from the stack pointer to the return address in
// a Go function.
func (f *File) goFrameSize(v Vaddr) (uint64, bool) {
	t := f.goFrames.get(func() *goFrames {
		var err error
		defer rescue(f.Path, &err)
		return f.im.goFrames()
	})
	if t == nil {
		return 0, false
	}
	return t.at(v)
}

// goFrames is Go's table of frame sizes (runtime/symtab.go, pcsp).
type goFrames struct {
	b                    []byte
	text                 Vaddr
	n, funcs, pcs, quant uint64
}

func (im *image) goFrames() *goFrames {
	s := im.section(".gopclntab")
	if s == nil {
		s = im.section(".data.rel.ro.gopclntab")
	}
	b, err := im.data(s)
	if err != nil || len(b) < 72 {
		return nil
	}
	le := binary.LittleEndian
	if m := le.Uint32(b); m != goMagic118 && m != goMagic120 || b[7] != 8 {
		return nil
	}
	t := &goFrames{b: b, quant: uint64(b[6]), n: le.Uint64(b[8:]), text: Vaddr(le.Uint64(b[24:])),
		pcs: le.Uint64(b[56:]), funcs: le.Uint64(b[64:])}
	if t.pcs > uint64(len(b)) || t.funcs > uint64(len(b)) || t.n > maxSymbols || t.n*8+4 > uint64(len(b))-t.funcs {
		return nil
	}
	if sec := im.section(".text"); sec != nil && (t.text == 0 || im.load(t.text) == nil) {
		t.text = sec.addr
	}
	return t
}

// at looks a frame's size up.
func (t *goFrames) at(v Vaddr) (uint64, bool) {
	if v < t.text || uint64(v-t.text) > 1<<32 {
		return 0, false
	}
	le, tab, want := binary.LittleEndian, t.b[t.funcs:], uint32(v-t.text)
	lo, hi := uint64(0), t.n
	for lo < hi {
		if mid := (lo + hi) / 2; le.Uint32(tab[mid*8:]) <= want {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || lo == t.n && want >= le.Uint32(tab[t.n*8:]) {
		return 0, false
	}
	// struct _func: entryoff, nameoff, args, deferreturn, pcsp.
	at := uint64(le.Uint32(tab[(lo-1)*8+4:]))
	if at+20 > uint64(len(tab)) {
		return 0, false
	}
	pcsp := uint64(le.Uint32(tab[at+16:]))
	if pcsp == 0 || t.pcs+pcsp >= uint64(len(t.b)) {
		return 0, false
	}
	return t.value(t.b[t.pcs+pcsp:], le.Uint32(tab[(lo-1)*8:]), want)
}

// value runs a table of values by address: pairs of a difference of the value,
// zigzag, and one of the address; a zero difference behind the first ends it.
func (t *goFrames) value(p []byte, pc, want uint32) (uint64, bool) {
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
