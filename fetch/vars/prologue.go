package vars

import (
	"encoding/binary"

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

// instruction is what precedes and follows an opcode.
type instruction struct {
	rex       byte
	wide      bool // prefix 66
	prefix    byte // f2, f3 or 0
	mod       byte
	reg, rm   int // rm of mod 3: a register
	base      fetch.Reg
	disp      int64
	inFrame   bool // the operand is disp from rsp or rbp
	rest      []byte
	malformed bool
}

func (i *instruction) take(n int) []byte {
	if len(i.rest) < n {
		i.malformed = true
		return make([]byte, n)
	}
	b := i.rest[:n]
	i.rest = i.rest[n:]
	return b
}

// size is the bytes of an operand that is no byte.
func (i *instruction) size() int64 {
	switch {
	case i.rex&8 != 0:
		return 8
	case i.wide:
		return 2
	}
	return 4
}

// operands reads ModRM and what belongs to it.
func (i *instruction) operands() {
	m := i.take(1)[0]
	i.mod, i.reg, i.rm = m>>6, int(m>>3&7|i.rex&4<<1), int(m&7|i.rex&1<<3)
	if i.mod == 3 {
		return
	}
	base := i.rm
	plain := true
	if m&7 == 4 {
		sib := i.take(1)[0]
		base = int(sib&7 | i.rex&1<<3)
		plain = sib>>3&7 == 4 && i.rex&2 == 0
		if sib&7 == 5 && i.mod == 0 {
			i.take(4)
			return
		}
	} else if m&7 == 5 && i.mod == 0 {
		i.take(4)
		return
	}
	switch i.mod {
	case 1:
		i.disp = int64(int8(i.take(1)[0]))
	case 2:
		i.disp = int64(int32(binary.LittleEndian.Uint32(i.take(4))))
	}
	i.base = fetch.Reg(base)
	i.inFrame = plain && (i.base == fetch.SP || i.base == fetch.BP)
}

// write records a store of size bytes of a register.
func (p *prologueCode) write(i *instruction, size int64, from origin) {
	if i.inFrame {
		p.writes = append(p.writes, frameWrite{i.base, i.disp, size, from})
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

// framePointer notes that rbp is made of rsp.
func (p *prologueCode) framePointer(to, from int, i *instruction) {
	if fetch.Reg(to) == fetch.BP && fetch.Reg(from) == fetch.SP && i.rex&8 != 0 {
		p.bp, p.bpKnown = p.sp, p.spKnown
	}
}

// byteRegister reports whether a byte operand is the low byte of its register.
func (i *instruction) byteRegister(reg int) bool { return i.rex != 0 || reg < 4 }

// step follows one instruction; false is the end.
func (p *prologueCode) step() bool {
	i := &instruction{rest: p.code}
	op := i.take(1)[0]
	for ; op == 0x66 || op == 0xf2 || op == 0xf3; op = i.take(1)[0] {
		if op == 0x66 {
			i.wide = true
		} else {
			i.prefix = op
		}
		if i.malformed {
			return false
		}
	}
	if op&0xf0 == 0x40 {
		i.rex = op
		op = i.take(1)[0]
	}
	ok := false
	if op == 0x0f {
		ok = p.twoByte(i)
	} else {
		ok = p.oneByte(op, i)
	}
	p.code = i.rest
	return ok && !i.malformed
}

func (p *prologueCode) oneByte(op byte, i *instruction) bool {
	switch {
	case op >= 0x50 && op <= 0x57: // push
		p.moveSP(-8)
		p.writes = append(p.writes, frameWrite{fetch.SP, 0, 8, fromNowhere})
		return true
	case op == 0x90:
		return true
	case op == 0x24 || op == 0x3c || op == 0xa8: // and, cmp, test of al: and of a bool changes no bit of it
		i.take(1)
		return true
	case op >= 0xb0 && op <= 0xb7: // mov imm8
		i.take(1)
		if reg := int(op&7 | i.rex&1<<3); i.byteRegister(reg) {
			p.regs[reg] = fromNowhere
		} else {
			p.regs[reg-4] = fromNowhere
		}
		return true
	case op >= 0xb8 && op <= 0xbf:
		i.take(int(max(i.size(), 2)))
		p.set(int(op&7|i.rex&1<<3), fromNowhere)
		return true
	}
	switch op {
	case 0x88, 0x89: // mov to r/m
		i.operands()
		from := p.origin(i.reg)
		size := i.size()
		if op == 0x88 {
			size = 1
			if !i.byteRegister(i.reg) {
				from = fromNowhere
			}
		}
		switch {
		case i.mod != 3:
			p.write(i, size, from)
		case op == 0x88 && !i.byteRegister(i.rm):
			p.regs[i.rm-4] = fromNowhere
		default:
			p.set(i.rm, from)
			p.framePointer(i.rm, i.reg, i)
		}
		return true
	case 0x8a, 0x8b: // mov from r/m
		i.operands()
		from := fromNowhere
		switch {
		case i.mod == 3 && (op == 0x8b || i.byteRegister(i.rm)):
			from = p.origin(i.rm)
		case i.mod != 3 && op == 0x8a:
			from = p.read(i, 1)
		case i.mod != 3:
			from = p.read(i, i.size())
		}
		if op == 0x8a && !i.byteRegister(i.reg) {
			p.regs[i.reg-4] = fromNowhere
			return true
		}
		p.set(i.reg, from)
		if i.mod == 3 {
			p.framePointer(i.reg, i.rm, i)
		}
		return true
	case 0x8d: // lea
		i.operands()
		p.set(i.reg, fromNowhere)
		return true
	case 0x80, 0x81, 0x83: // add … cmp with a constant
		i.operands()
		n := int64(0)
		switch {
		case op != 0x81:
			n = int64(int8(i.take(1)[0]))
		case i.wide && i.rex&8 == 0:
			i.take(2)
		default:
			n = int64(int32(binary.LittleEndian.Uint32(i.take(4))))
		}
		switch {
		case i.mod == 3 && i.rm == int(fetch.SP) && i.rex&8 != 0 && i.reg&7 == 5 && op != 0x80: // sub
			p.moveSP(-n)
		case i.mod == 3 && i.rm == int(fetch.SP) && i.rex&8 != 0 && i.reg&7 == 0 && op != 0x80: // add
			p.moveSP(n)
		case i.reg&7 == 7: // cmp
		case i.mod != 3:
			p.write(i, 8, fromNowhere)
		case op == 0x80 && !i.byteRegister(i.rm):
			p.regs[i.rm-4] = fromNowhere
		case op == 0x80 && i.reg&7 == 4: // and of a bool, which changes no bit of it
		default:
			p.set(i.rm, fromNowhere)
		}
		return true
	case 0x31, 0x21, 0x01, 0x29, 0x09: // xor, and, add, sub, or
		i.operands()
		if i.mod == 3 {
			p.set(i.rm, fromNowhere)
		} else {
			p.write(i, 8, fromNowhere)
		}
		return true
	case 0x33, 0x23, 0x03, 0x2b, 0x0b:
		i.operands()
		p.set(i.reg, fromNowhere)
		return true
	case 0x38, 0x39, 0x3a, 0x3b, 0x84, 0x85: // cmp, test
		i.operands()
		return true
	case 0xc1, 0xd1, 0xd3: // shifts
		i.operands()
		if op == 0xc1 {
			i.take(1)
		}
		if i.mod == 3 {
			p.origin(i.rm)
			p.set(i.rm, fromNowhere)
		} else {
			p.write(i, 8, fromNowhere)
		}
		return true
	case 0xc6, 0xc7: // mov of a constant
		i.operands()
		size := int64(1)
		if op == 0xc7 {
			size = i.size()
		}
		i.take(int(min(size, 4)))
		if i.mod == 3 {
			p.set(i.rm, fromNowhere)
		} else {
			p.write(i, size, fromNowhere)
		}
		return true
	}
	return false
}

func (p *prologueCode) twoByte(i *instruction) bool {
	op := i.take(1)[0]
	switch op {
	case 0x1e, 0x1f: // endbr64, nop
		i.operands()
		return true
	case 0xb6, 0xb7, 0xbe, 0xbf: // movzx, movsx: the low bits stay
		i.operands()
		from := fromNowhere
		switch {
		case i.mod == 3 && (op&1 != 0 || i.byteRegister(i.rm)):
			from = p.origin(i.rm)
		case i.mod != 3:
			from = p.read(i, 1+int64(op&1))
		}
		p.set(i.reg, from)
		return true
	case 0x10, 0x28, 0x6f: // vectors, from r/m
		i.operands()
		from := fromNowhere
		if i.mod == 3 {
			from = p.origin(16 + i.rm)
		}
		p.regs[16+i.reg] = from
		return true
	case 0x11, 0x29, 0x7f:
		i.operands()
		size := int64(16)
		switch {
		case op == 0x11 && i.prefix == 0xf3:
			size = 4
		case op == 0x11 && i.prefix == 0xf2:
			size = 8
		}
		if from := p.origin(16 + i.reg); i.mod == 3 {
			p.regs[16+i.rm] = from
		} else {
			p.write(i, size, from)
		}
		return true
	case 0xd6: // movq to r/m
		i.operands()
		if i.mod != 3 {
			p.write(i, 8, p.regs[16+i.reg])
		}
		return i.wide && i.mod != 3
	case 0x7e: // movd, movq to a general register or memory
		i.operands()
		switch {
		case !i.wide:
			return false
		case i.mod == 3:
			p.set(i.rm, p.regs[16+i.reg])
		default:
			p.write(i, max(i.size(), 4), p.regs[16+i.reg])
		}
		return true
	case 0x57, 0xef: // xorps, pxor
		i.operands()
		p.regs[16+i.reg] = fromNowhere
		return true
	}
	return false
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
		if w.base != base || w.disp >= disp+size || w.disp+w.size <= disp {
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
