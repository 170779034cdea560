package symbols

import (
	"debug/elf"
	"encoding/binary"
)

// goCall is an inlined call: the function's name, and where in the function that
// it was inlined into the call was (internal/abi and runtime/symtabinl.go in Go's
// source, since 1.20).
type goCall struct{ name, parent uint32 }

// call returns an inlined call of a function by its number.
func (t *goLines) call(fn *goFunc, i int32) (c goCall, ok bool) {
	_, list, ok := t.treeTable(fn)
	at := uint64(list) + uint64(i)*goCallSize
	if !ok || i < 0 || at+goCallSize > uint64(len(t.trees)) {
		return c, false
	}
	le := binary.LittleEndian
	c = goCall{le.Uint32(t.trees[at+4:]), le.Uint32(t.trees[at+8:])}
	name := t.names + uint64(c.name)
	whole := c.name > 0 && name < uint64(len(t.b)) && t.b[name-1] == 0 && t.b[name] != 0
	return c, whole && c.parent < fn.end-fn.start
}

// goTrees finds the lists of inlined calls. Their start is a word of the linker's
// description of the program, whose layout changes with Go's versions; the right
// word is known by what it leads to. nil is: not found, so that names aren't told.
func (im *image) goTrees(t *goLines) []byte {
	if t.flags <= goStartLine+4 {
		return nil // of before 1.20
	}
	sample := t.withTrees()
	header := im.section(".gopclntab")
	if header == nil || len(sample) == 0 {
		return nil // position-independent: relocations have the words
	}
	le := binary.LittleEndian
	for i := range im.sections {
		s := &im.sections[i]
		if s.flags&elf.SHF_WRITE == 0 || s.typ == elf.SHT_NOBITS {
			continue
		}
		b, err := im.data(s)
		if err != nil {
			continue
		}
		for at := 0; at+8 <= len(b); at += 8 {
			if le.Uint64(b[at:]) != uint64(header.addr) {
				continue
			}
			for w := at + 8; w+8 <= min(at+goModuleWords*8, len(b)); w += 8 {
				if found := im.treesAt(t, Vaddr(le.Uint64(b[w:])), sample); found != nil {
					return found
				}
			}
		}
	}
	return nil
}

// goModuleWords is how many words of the description are looked at.
const goModuleWords = 64

// withTrees are some functions that something was inlined into.
func (t *goLines) withTrees() (out []goFunc) {
	for i := uint64(0); i < t.n && len(out) < 16; i++ {
		if fn, ok := t.function(i); ok {
			if _, _, ok := t.treeTable(&fn); ok {
				out = append(out, fn)
			}
		}
	}
	return out
}

// treesAt is what lies at an address, if all inlined calls of the sample are there.
func (im *image) treesAt(t *goLines, v Vaddr, sample []goFunc) []byte {
	s := im.sectionAt(v)
	if s == nil || s.flags&elf.SHF_ALLOC == 0 || s.typ == elf.SHT_NOBITS {
		return nil
	}
	b, err := im.data(s)
	if err != nil || uint64(v-s.addr) >= uint64(len(b)) {
		return nil
	}
	try := *t
	try.trees = b[v-s.addr:]
	for i := range sample {
		for _, r := range try.rows(&sample[i], nil) {
			if _, ok := try.call(&sample[i], r.tree); r.tree >= 0 && !ok {
				return nil
			}
		}
	}
	return try.trees
}
