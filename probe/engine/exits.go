package engine

import (
	"kprobe/probe/assess"
	"kprobe/probe/exits"
	"kprobe/probe/insn"
)

// exitFinder finds exits of functions. It is valid until the process's mappings change.
func (tg *Target) exitFinder() *exits.Finder {
	return exits.New(tg.Space, tg.Proc, tg.assessor(), tg.funcs.Leaving)
}

// describeExits notes how the function is left: what its returns pop, and
// whether it may jump on to other functions or start over.
func (p *Placed) describeExits(f *assess.Function) {
	p.startsOver = f.Leaving().StartsOver
	for _, x := range f.Leaving().Exits {
		if x.Kind == insn.ExitRet && (x.Pop != 0 || p.rare != nil) {
			p.rarer().pop = uint64(x.Pop)
		}
		p.tails = p.tails || x.Kind.Onward()
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
