package vars

import (
	"kprobe/fetch"
)

// origin says where a register's value comes from: a register at the function's entry, a
// word of the caller's stack, or an unknown source.
type origin uint8

const (
	fromNowhere origin = 0xff
	fromXMM0    origin = 16 // and following, after the general registers
	fromStack   origin = 32 // and following: the words after the return address
)

// stackOrigin returns the origin for the word at a distance from the entry's stack pointer.
func stackOrigin(off int64) origin {
	if n := off/8 - 1; off%8 == 0 && n >= 0 && n < int64(fromNowhere-fromStack) {
		return fromStack + origin(n)
	}
	return fromNowhere
}

func (o origin) place() place {
	if o >= fromStack {
		return place{kind: inMemory, sym: register(fetch.SP).add(8 * int64(o-fromStack+1))}
	}
	if o >= fromXMM0 {
		return xmm(int(o - fromXMM0))
	}
	return place{kind: isValue, sym: register(fetch.Reg(o))}
}

// frameWrite is a store into the frame: size bytes at disp from rsp or rbp.
type frameWrite struct {
	base fetch.Reg
	disp int64
	size int64
	from origin
	push bool // by a push, with which compilers also make room
}

// prologueCode follows the registers of the entry through straight code, up to the first
// instruction that it doesn't know (Intel SDM 2). It knows the opcodes with which compilers
// begin functions.
type prologueCode struct {
	code   []byte
	regs   [32]origin
	writes []frameWrite

	sp, bp           int64 // distances from the entry's stack pointer
	spKnown, bpKnown bool
	wroteSomewhere   bool // to an address that may lie in the frame

	used [32]bool // whether instructions read the value that a register had at the entry
}

// reads reports whether an instruction reads a register's value from the entry.
func (p *prologueCode) reads(at place) bool {
	if at.isXMM() {
		return p.used[int(fromXMM0)+int(at.sym.src.Reg)&15]
	}
	r, ok := at.sym.isReg()
	return ok && at.kind == isValue && r <= fetch.R15 && p.used[r]
}

// origin returns the origin of a register's value, and marks it as read by an instruction.
func (p *prologueCode) origin(reg int) origin {
	from := p.regs[reg]
	if from < fromStack {
		p.used[from] = true
	}
	return from
}

// run follows the code.
func (p *prologueCode) run() {
	for i := range p.regs {
		p.regs[i] = origin(i)
	}
	p.spKnown = true
	for len(p.code) > 0 && len(p.writes) < 256 && p.step() {
	}
}

// write records that an instruction stores size bytes of a register.
func (p *prologueCode) write(i *instruction, size int64, from origin) {
	if i.inFrame {
		p.writes = append(p.writes, frameWrite{i.base, i.disp, size, from, false})
	} else {
		p.wroteSomewhere = true
	}
}

// fromEntry converts disp from rsp or rbp to a distance from the entry's stack pointer.
func (p *prologueCode) fromEntry(base fetch.Reg, disp int64) (int64, bool) {
	switch {
	case base == fetch.SP && p.spKnown:
		return p.sp + disp, true
	case base == fetch.BP && p.bpKnown:
		return p.bp + disp, true
	}
	return 0, false
}

// read returns the origin of size bytes that an instruction reads from memory: code has stored
// them there, or the caller.
func (p *prologueCode) read(i *instruction, size int64) origin {
	at, known := p.fromEntry(i.base, i.disp)
	if !i.inFrame || !known || p.wroteSomewhere {
		return fromNowhere
	}
	for n := len(p.writes) - 1; n >= 0; n-- {
		w := p.writes[n]
		to, known := p.fromEntry(w.base, w.disp)
		switch {
		case !known:
			return fromNowhere
		case to >= at+size || to+w.size <= at:
		case to == at && w.size >= size:
			return w.from
		default:
			return fromNowhere
		}
	}
	return stackOrigin(at)
}

// moveSP adds to the stack pointer.
func (p *prologueCode) moveSP(delta int64) {
	p.regs[fetch.SP] = fromNowhere
	p.sp += delta
	for n := range p.writes {
		if p.writes[n].base == fetch.SP {
			p.writes[n].disp -= delta
		}
	}
}

// set gives a register another value. If it is rsp or rbp, the places of stores relative to it
// move.
func (p *prologueCode) set(reg int, from origin) {
	p.regs[reg] = from
	if r := fetch.Reg(reg); r == fetch.SP || r == fetch.BP {
		if r == fetch.SP {
			p.spKnown = false
		} else {
			p.bpKnown = false
		}
		kept := p.writes[:0]
		for _, w := range p.writes {
			if w.base != r {
				kept = append(kept, w)
			}
		}
		p.writes = kept
	}
}

// untouched returns where the caller has put the value at a place of its own frame, if no
// store has changed it.
func (p *prologueCode) untouched(base fetch.Reg, disp, size int64) (origin, bool) {
	at, known := p.fromEntry(base, disp)
	if !known || at < 8 {
		return fromNowhere, false
	}
	for _, w := range p.writes {
		if to, known := p.fromEntry(w.base, w.disp); !known || to < at+size && at < to+w.size {
			return fromNowhere, false
		}
	}
	from := stackOrigin(at)
	return from, from != fromNowhere
}

// first returns the origin of the first store to a place in the frame, if the store begins
// there with size bytes or more.
func (p *prologueCode) first(base fetch.Reg, disp, size int64) (origin, bool) {
	for _, w := range p.writes {
		if w.push || w.base != base || w.disp >= disp+size || w.disp+w.size <= disp {
			continue
		}
		return w.from, w.disp == disp && w.size >= size && w.from != fromNowhere
	}
	return fromNowhere, false
}

// touched reports whether a store overlaps a place in the frame.
func (p *prologueCode) touched(base fetch.Reg, disp, size int64) bool {
	at, known := p.fromEntry(base, disp)
	for _, w := range p.writes {
		if to, ok := p.fromEntry(w.base, w.disp); !known || !ok || to < at+size && at < to+w.size {
			return true
		}
	}
	return !known
}
