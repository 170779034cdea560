package probe

import (
	"fmt"

	"kprobe/probe/insn"
	"kprobe/symbols"
)

// exits makes a site of each instruction by which a Go function is left. A
// jump into another function leaves it too: its hit is recorded before that
// function runs.
func (tg *target) exits(f *function, w symbols.Site, p *placed) ([]want, error) {
	var out []want
	for _, x := range f.sweep.Exits() {
		if x.Kind != insn.ExitRet && x.Kind != insn.ExitTail && x.Kind != insn.ExitCondTail {
			continue
		}
		at := w
		at.Addr = symbols.Addr(x.Addr)
		at.Offset = x.Addr - uint64(f.start)
		at.Vaddr = f.fn.Start + symbols.Vaddr(at.Offset)
		at.Name = fmt.Sprintf("%s+%#x", w.Name, at.Offset)
		code, inst, err := tg.prove(at)
		if err != nil {
			return nil, err
		}
		out = append(out, want{p: p, at: at, code: code, inst: inst, kind: wantExit, conditional: x.Kind == insn.ExitCondTail})
	}
	if len(out) == 0 {
		return nil, &RefusedError{Addr: w.Addr, Place: w.Name, Rule: "the function never returns"}
	}
	return out, nil
}

// describeExits notes how the function is left: what its returns pop, and
// whether it may jump on to other functions.
func (p *placed) describeExits(f *function) {
	for _, x := range f.sweep.Exits() {
		switch x.Kind {
		case insn.ExitRet:
			p.pop = uint64(x.Pop)
		case insn.ExitTail, insn.ExitCondTail:
			p.tails = true
		}
	}
}

// jccTaken reports whether a conditional jump with this opcode's condition
// would be taken with these flags (Intel SDM vol. 1, table B-1).
func jccTaken(opcode byte, flags uint64) bool {
	const cf, pf, zf, sf, of = 1 << 0, 1 << 2, 1 << 6, 1 << 7, 1 << 11
	less := flags&sf != 0 != (flags&of != 0)
	var t bool
	switch opcode & 15 >> 1 {
	case 0:
		t = flags&of != 0
	case 1:
		t = flags&cf != 0
	case 2:
		t = flags&zf != 0
	case 3:
		t = flags&(cf|zf) != 0
	case 4:
		t = flags&sf != 0
	case 5:
		t = flags&pf != 0
	case 6:
		t = less
	case 7:
		t = less || flags&zf != 0
	}
	return t != (opcode&1 != 0)
}
