package engine

import (
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/symbols"
)

// effects says of each instruction of a detour whether a thread there can be led out of it at once. Only the code
// is looked at: an instruction has an effect if it writes to memory other than the frame.
type effects struct {
	undone bits // no instruction on any way there has had an effect
	open   bits // none has had one, except on the record that is open there (detour.Open)
	done   bits // no instruction on any way from there to the displaced instructions, or back to the caller, has one

	ret    symbols.Addr // a return instruction of the function (returnOf); 0: none
	looked bool         // ret has been looked for
}

// bits has a bit for each byte of a detour's code.
type bits []uint64

func (b bits) has(off int) bool { return off>>6 < len(b) && b[off>>6]>>(off&63)&1 != 0 }
func (b bits) set(off int)      { b[off>>6] |= 1 << (off & 63) }

// node is an instruction of a detour.
type node struct {
	off, size int
	next      []int // where it may lead, by index; -1: out of the code
	before    []int // what may lead here
	effect    bool  // it has an effect
	hidden    bool  // it has only the effect on a record that is being reserved or is open
	// swaps says that it compares and exchanges, and the next instruction continues elsewhere unless it did.
	swaps bool
	entry bool // other code may lead here
}

// findEffects finds the effects of a detour's code, whose threads continue in the displaced instructions at an
// offset. rseq is detour.Params.Rseq.
func findEffects(d *detour.Detour, code []byte, copies int, rseq int32) *effects {
	f := effectFinder{d: d, code: code, copies: copies, rseq: rseq, at: map[int]int{}}
	f.visit(0)
	if at := d.Returns(); at != 0 {
		f.visit(int(at - d.Base))
	}
	for i := 0; i < len(f.nodes); i++ { // visit adds to them
		f.lead(i)
	}
	for i := range f.nodes {
		for _, to := range f.nodes[i].next {
			if to >= 0 {
				f.nodes[to].before = append(f.nodes[to].before, i)
			}
		}
	}
	size := (len(code) + 63) / 64
	e := &effects{undone: make(bits, size), open: make(bits, size), done: make(bits, size)}
	f.before(e.undone, func(n *node) bool { return n.effect || n.hidden })
	f.before(e.open, func(n *node) bool { return n.effect })
	f.behind(e.done)
	return e
}

type effectFinder struct {
	d      *detour.Detour
	code   []byte
	copies int // offset of the displaced instructions
	rseq   int32
	nodes  []node
	at     map[int]int // index of the node at an offset
}

// visit returns the index of the instruction at an offset, or -1 if none of the detour's is there.
func (f *effectFinder) visit(off int) int {
	if off < 0 || off >= len(f.code) || off == f.copies {
		return -1
	}
	i, ok := f.at[off]
	if !ok {
		i = len(f.nodes)
		f.at[off] = i
		f.nodes = append(f.nodes, node{off: off})
	}
	return i
}

// lead decodes an instruction and finds where it leads.
func (f *effectFinder) lead(i int) {
	off := f.nodes[i].off
	at, code := f.d.Base+uint64(off), f.code[off:]
	x, err := insn.Decode(code)
	if err != nil {
		f.nodes[i].effect = true
		return
	}
	n := node{off: off, size: int(x.Len), entry: f.nodes[i].entry}
	f.classify(&n, x, code)
	to := func(a uint64) {
		k := f.visit(int(int64(a - f.d.Base)))
		if n.next = append(n.next, k); k < 0 && a != f.d.Copy() {
			n.effect = true
		}
	}
	switch target, direct := x.Target(at, code); {
	case x.Is(insn.Ret) && f.d.Returning(at): // to the program
	case x.Is(insn.IndirectJmp) && f.leadsOn(x, code): // to a stub, and the displaced instructions
	case x.Flags.Any(insn.Ret|insn.Trap|insn.IndirectJmp|insn.FarBranch|insn.Halt|insn.Undefined|insn.Stops) && !direct:
		n.effect = true // it leads to other code
	case x.Flags.Any(insn.Call | insn.IndirectCall | insn.Syscall):
		n.effect = true
		if f.d.Returns() == 0 || x.Is(insn.Syscall) { // else the function returns to a return trampoline
			to(at + uint64(x.Len))
		}
	default:
		if !x.Is(insn.Jmp) {
			to(at + uint64(x.Len))
		}
		if direct {
			to(target)
		}
	}
	if a, ok := x.RIPTarget(at, code); ok && x.Is(insn.LEA) {
		if k := f.visit(int(int64(a - f.d.Base))); k >= 0 {
			f.nodes[k].entry = true
			n.entry = n.entry || k == i
		}
	}
	for _, y := range f.d.Faults() {
		if y.At == at {
			to(y.To)
		}
	}
	for _, y := range f.d.Asks() {
		if y.At == at {
			to(y.Back)
		}
	}
	n.entry = n.entry || f.nodes[i].entry
	f.nodes[i] = n
}

// leadsOn reports whether an instruction is the last of an entry's code that has return trampolines.
func (f *effectFinder) leadsOn(x insn.Inst, code []byte) bool {
	base, index, _, _, ok := x.Mem(code)
	return ok && f.d.Returns() != 0 && base == insn.RSP && index == insn.NoReg
}

// classify sets what effect an instruction has.
func (f *effectFinder) classify(n *node, x insn.Inst, code []byte) {
	if !x.Is(insn.MemWrite) || x.Is(insn.Push) {
		return
	}
	base, index, _, disp, ok := x.Mem(code)
	const segments = insn.PrefixFS | insn.PrefixGS
	writing := f.d.Writing(f.d.Base + uint64(n.off))
	switch {
	case !ok || x.Prefixes&segments != 0 || x.Is(insn.RepString):
		n.effect = true
	case base == insn.RSP && index == insn.NoReg:
	case f.rseq != 0 && base == insn.RAX && index == insn.NoReg && disp == int64(f.rseq)+detour.RseqDescription:
		// It begins or ends a restartable sequence, which ends when the thread is led elsewhere.
	case writing == detour.Reserving && (base == insn.RSI || base == insn.RCX), writing == detour.Open && base == insn.RCX:
		n.hidden = true
	default:
		n.effect = true
	}
	const cmpxchg = 0xb1
	n.swaps = x.Map == 1 && x.Opcode == cmpxchg
}

// before sets the bits of the instructions that no effect is ahead of.
func (f *effectFinder) before(clean bits, has func(*node) bool) {
	dirty, list := make([]bool, len(f.nodes)), []int(nil)
	mark := func(k int) {
		if k >= 0 && !dirty[k] {
			dirty[k] = true
			list = append(list, k)
		}
	}
	unsure := map[int]bool{} // the exchange before them may have taken place
	for i := range f.nodes {
		n := &f.nodes[i]
		switch {
		case n.entry:
			mark(i)
		case !has(n):
		case n.swaps && len(n.next) == 1 && n.next[0] >= 0 && f.unlessEqual(&f.nodes[n.next[0]]):
			unsure[n.next[0]] = true
			mark(f.nodes[n.next[0]].next[0]) // the way on if it did
		default:
			for _, k := range n.next {
				mark(k)
			}
		}
	}
	for len(list) > 0 {
		n := &f.nodes[list[len(list)-1]]
		list = list[:len(list)-1]
		for _, k := range n.next {
			mark(k)
		}
	}
	for i := range f.nodes {
		if !dirty[i] && !unsure[i] {
			clean.set(f.nodes[i].off)
		}
	}
}

// unlessEqual reports whether an instruction is a jne.
func (f *effectFinder) unlessEqual(n *node) bool {
	const short, near = 0x75, 0x85
	b := f.code[n.off:]
	return len(n.next) == 2 && (b[0] == short || len(b) > 1 && b[0] == 0x0f && b[1] == near)
}

// behind sets the bits of the instructions behind which there are no effects.
func (f *effectFinder) behind(clean bits) {
	dirty, list := make([]bool, len(f.nodes)), []int(nil)
	mark := func(k int) {
		if !dirty[k] {
			dirty[k] = true
			list = append(list, k)
		}
	}
	for i := range f.nodes {
		if n := &f.nodes[i]; n.effect || n.hidden || n.size == 0 {
			mark(i)
		}
	}
	for len(list) > 0 {
		n := &f.nodes[list[len(list)-1]]
		list = list[:len(list)-1]
		for _, k := range n.before {
			mark(k)
		}
	}
	for i := range f.nodes {
		if !dirty[i] {
			clean.set(f.nodes[i].off)
		}
	}
}
