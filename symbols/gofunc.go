package symbols

import "encoding/binary"

// goFuncs is the table of functions that Go's runtime has in every binary
// (.gopclntab; internal/abi/symtab.go and cmd/link/internal/ld/pcln.go in Go's
// source). The zero value has none.
type goFuncs struct {
	b     []byte // the section
	text  Vaddr  // the address that starts are relative to
	n     uint64
	names uint64 // offset of the names
	pcs   uint64 // offset of the tables by address; it may be past the end
	quant uint64 // what these tables count addresses in
	tab   []byte // n pairs of u32: start, offset in tab of the rest; and the last end
	flags int    // offset of the flags in that rest
}

// goFuncFlagAsm marks what the assembler made (internal/abi.FuncFlagAsm).
const goFuncFlagAsm = 1 << 2

// goFuncs finds the table. n is 0 if there is none, or its version isn't known.
func (im *image) goFuncs() (t goFuncs) {
	s := im.section(".gopclntab")
	if s == nil {
		s = im.section(".data.rel.ro.gopclntab") // position-independent, before 1.26
	}
	b, err := im.data(s)
	if err != nil || len(b) < 72 {
		return t
	}
	le := binary.LittleEndian
	magic := le.Uint32(b)
	if magic != goMagic118 && magic != goMagic120 || b[7] != 8 {
		return t
	}
	n, text := le.Uint64(b[8:]), Vaddr(le.Uint64(b[24:]))
	names, funcs := le.Uint64(b[32:]), le.Uint64(b[64:])
	if names > uint64(len(b)) || funcs > uint64(len(b)) || n > maxSymbols || n*8+4 > uint64(len(b))-funcs {
		return t
	}
	if sec := im.section(".text"); sec != nil && (text == 0 || im.load(text) == nil) {
		// Since 1.26 the linker leaves it out, and in position-independent
		// files it is a relocation.
		text = sec.addr
	}
	t = goFuncs{b: b, text: text, n: n, names: names, pcs: le.Uint64(b[56:]), quant: uint64(b[6]), tab: b[funcs:], flags: 41}
	if magic == goMagic118 {
		t.flags = 37 // before it came the line of the function's start
	}
	return t
}

// goFunctions returns the file's table, which is read once.
func (f *File) goFunctions() goFuncs {
	return f.goTable.get(func() (t goFuncs) {
		var err error
		defer rescue(f.Path, &err)
		return f.im.goFuncs()
	})
}

// at returns the i-th function: where it starts and ends, and where in tab its
// description is.
func (t *goFuncs) at(i uint64) (start, end Vaddr, rest uint64) {
	le := binary.LittleEndian
	return t.text + Vaddr(le.Uint32(t.tab[i*8:])), t.text + Vaddr(le.Uint32(t.tab[i*8+8:])), uint64(le.Uint32(t.tab[i*8+4:]))
}

// GoKind says where a function comes from, in a file that Go's linker made.
type GoKind uint8

// The kinds. What Go's compiler made keeps to Go's internal calling convention,
// or is a wrapper around what does (go/src/cmd/compile/abi-internal.md).
const (
	GoUnknown   GoKind = iota // the file doesn't tell, or no function starts there
	GoForeign                 // of another language: it is outside of Go's code
	GoCompiled                // of Go's compiler
	GoAssembled               // of Go's assembler
)

// GoKind says where the function that starts at v comes from.
func (f *File) GoKind(v Vaddr) GoKind {
	t := f.goFunctions()
	if t.n == 0 {
		return GoUnknown
	}
	first, _, _ := t.at(0)
	if _, last, _ := t.at(t.n - 1); v < first || v >= last {
		return GoForeign
	}
	lo, hi := uint64(0), t.n
	for lo < hi {
		mid := lo + (hi-lo)/2
		start, _, rest := t.at(mid)
		switch {
		case start < v:
			lo = mid + 1
		case start > v:
			hi = mid
		case rest+uint64(t.flags)+3 > uint64(len(t.tab)):
			return GoUnknown
		case t.tab[rest+uint64(t.flags)]&goFuncFlagAsm != 0:
			return GoAssembled
		case t.tab[rest+uint64(t.flags)+2] >= 2: // the maps of live pointers, which every compiled function has
			return GoCompiled
		default:
			return GoUnknown
		}
	}
	return GoUnknown
}
