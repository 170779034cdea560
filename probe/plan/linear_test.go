package plan

import "kprobe/probe/insn"

// NewFunc takes a function apart that was not swept. start is its address, size its length; code
// are the original bytes from start on, at least size of them and, where there
// are more, those that follow: puns need up to 5. code is kept.
func NewFunc(start uint64, code []byte, size int, known Known) *Func {
	f := new(Func)
	f.begin(start, code, size, known)
	for off := 0; off < f.size; {
		i, err := insn.Decode(code[off:])
		n := int(i.Len)
		if err != nil || off+n > f.size {
			// Data, or what the decoder doesn't know: the next byte may be an
			// instruction again.
			off += max(1, n*b2i(err == insn.ErrUndefined))
			continue
		}
		f.insts = append(f.insts, inst{off, i.Flags, i.Len})
		if t, ok := i.Target(uint64(off), code[off:]); ok && t < uint64(f.size) {
			f.targets = append(f.targets, int(t))
		}
		// jmp [rip+x] is a PLT stub's or a tail call through a pointer.
		if i.Is(insn.IndirectJmp) && !i.Is(insn.RIPRel) {
			f.indirect, f.unknown = true, true
		}
		off += n
	}
	f.finish()
	return f
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
