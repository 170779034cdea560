package vars

import (
	"encoding/binary"

	"kprobe/fetch"
)

// framePointer notes that rbp is set from rsp.
func (p *prologueCode) framePointer(to, from int, i *instruction) {
	if fetch.Reg(to) == fetch.BP && fetch.Reg(from) == fetch.SP && i.rex&8 != 0 {
		p.bp, p.bpKnown = p.sp, p.spKnown
	}
}

// step follows one instruction. It returns false at the end.
func (p *prologueCode) step() bool {
	i, used := &instruction{rest: p.code}, p.used
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
	if i.malformed { // the code ends within the instruction
		p.used = used
	}
	return ok && !i.malformed
}

func (p *prologueCode) oneByte(op byte, i *instruction) bool {
	switch {
	case op >= 0x50 && op <= 0x57: // push
		p.moveSP(-8)
		p.writes = append(p.writes, frameWrite{fetch.SP, 0, 8, fromNowhere, true})
		return true
	case op == 0x90:
		return true
	case op == 0x24 || op == 0x3c || op == 0xa8: // and, cmp, test of al; "and" of a bool doesn't change its bit
		i.take(1)
		p.origin(int(fetch.AX))
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
		case op == 0x80 && i.reg&7 == 4: // "and" of a bool, which doesn't change its bit
		default:
			p.set(i.rm, fromNowhere)
		}
		return true
	case 0x31, 0x21, 0x01, 0x29, 0x09: // xor, and, add, sub, or
		i.operands()
		if i.mod != 3 || i.reg != i.rm { // with itself as operand, it makes 0 or changes nothing
			p.origin(i.reg)
		}
		if i.mod == 3 {
			p.set(i.rm, fromNowhere)
		} else {
			p.write(i, 8, fromNowhere)
		}
		return true
	case 0x33, 0x23, 0x03, 0x2b, 0x0b:
		i.operands()
		if i.mod == 3 && i.reg != i.rm {
			p.origin(i.rm)
		}
		p.set(i.reg, fromNowhere)
		return true
	case 0x63: // movslq: the low bits stay
		i.operands()
		from := fromNowhere
		if i.mod == 3 {
			from = p.origin(i.rm)
		}
		p.set(i.reg, from)
		return true
	case 0x98: // cltq
		p.set(int(fetch.AX), p.origin(int(fetch.AX)))
		return true
	case 0x38, 0x39, 0x3a, 0x3b, 0x84, 0x85: // cmp, test
		i.operands()
		if op&1 != 0 || i.byteRegister(i.reg) {
			p.origin(i.reg)
		}
		if i.mod == 3 && (op&1 != 0 || i.byteRegister(i.rm)) {
			p.origin(i.rm)
		}
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
			p.write(i, 8, p.origin(16+i.reg))
		}
		return i.wide && i.mod != 3
	case 0x7e: // movd, movq to a general register or memory
		i.operands()
		switch {
		case !i.wide:
			return false
		case i.mod == 3:
			p.set(i.rm, p.origin(16+i.reg))
		default:
			p.write(i, max(i.size(), 4), p.origin(16+i.reg))
		}
		return true
	case 0x2e, 0x2f: // ucomis, comis
		i.operands()
		p.origin(16 + i.reg)
		if i.mod == 3 {
			p.origin(16 + i.rm)
		}
		return true
	case 0x51, 0x58, 0x59, 0x5a, 0x5c, 0x5e: // sqrt, add, mul, cvt, sub, div
		i.operands()
		if i.mod == 3 {
			p.origin(16 + i.rm)
		}
		if op != 0x51 && op != 0x5a {
			p.origin(16 + i.reg)
		}
		p.regs[16+i.reg] = fromNowhere
		return true
	case 0x57, 0xef: // xorps, pxor
		i.operands()
		p.regs[16+i.reg] = fromNowhere
		return true
	}
	return false
}
