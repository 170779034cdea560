package vars

import (
	"kprobe/fetch"
)

// origin is where a register's value comes from: the register that held it at
// the function's entry, a word of its caller's stack, or nowhere that is known.
type origin uint8

const (
	fromNowhere origin = 0xff
	fromXMM0    origin = 16 // and on, behind the general ones
	fromStack   origin = 32 // and on: the words behind the return address
)

// stackOrigin is what lies at a distance from the stack pointer of the entry.
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
	push bool // which compilers make room with, too
}

// prologueCode follows the registers of the entry through straight code, up to the
// first instruction that it doesn't know (Intel SDM 2; opcodes are those that
// compilers begin functions with).
type prologueCode struct {
	code   []byte
	regs   [32]origin
	writes []frameWrite

	sp, bp           int64 // distances from the stack pointer of the entry
	spKnown, bpKnown bool
	wroteSomewhere   bool // to an address that may be one of the frame's

	used [32]bool // instructions read what the registers held at the entry
}

// reads reports whether an instruction reads a register of the entry.
func (p *prologueCode) reads(at place) bool {
	if at.isXMM() {
		return p.used[int(fromXMM0)+int(at.sym.src.Reg)&15]
	}
	r, ok := at.sym.isReg()
	return ok && at.kind == isValue && r <= fetch.R15 && p.used[r]
}

// origin is what a register holds, for an instruction that reads it.
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

// write records a store of size bytes of a register.
func (p *prologueCode) write(i *instruction, size int64, from origin) {
	if i.inFrame {
		p.writes = append(p.writes, frameWrite{i.base, i.disp, size, from, false})
	} else {
		p.wroteSomewhere = true
	}
}

// fromEntry is the distance from the stack pointer of the entry of what lies at
// disp from rsp or rbp.
func (p *prologueCode) fromEntry(base fetch.Reg, disp int64) (int64, bool) {
	switch {
	case base == fetch.SP && p.spKnown:
		return p.sp + disp, true
	case base == fetch.BP && p.bpKnown:
		return p.bp + disp, true
	}
	return 0, false
}

// read is where size bytes come from that are read from memory: what the code has
// stored there, or the caller.
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

// set gives a register another value; stores relative to it are then elsewhere.
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

// untouched is where the caller has put what lies at a place of its own frame, if
// no store has changed it.
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

// first is the first store to a byte of the frame, if it begins there with size
// bytes or more.
func (p *prologueCode) first(base fetch.Reg, disp, size int64) (origin, bool) {
	for _, w := range p.writes {
		if w.push || w.base != base || w.disp >= disp+size || w.disp+w.size <= disp {
			continue
		}
		return w.from, w.disp == disp && w.size >= size && w.from != fromNowhere
	}
	return fromNowhere, false
}

// touched reports a store to some of a place of the frame.
func (p *prologueCode) touched(base fetch.Reg, disp, size int64) bool {
	at, known := p.fromEntry(base, disp)
	for _, w := range p.writes {
		if to, ok := p.fromEntry(w.base, w.disp); !known || !ok || to < at+size && at < to+w.size {
			return true
		}
	}
	return !known
}
