package insn

import "encoding/binary"

// skip is the red zone: what lies below rsp and belongs to the program.
const skip = 128

// reaches reports whether the RIP-relative operand can mean the same address
// from here, n being what is emitted before the instruction. With a 67 prefix
// addresses have 32 bits, and all are in reach.
func (m *mover) reaches(target uint64, n int) bool {
	if m.cur.Prefixes&PrefixAddrSize != 0 {
		return true
	}
	return m.near(target, n+int(m.cur.Len))
}

// redisplace emits code, which is the current instruction or one of the same
// shape, with its operand meaning the target.
func (m *mover) redisplace(code []byte, target uint64) {
	off := int(m.cur.DispOff)
	d := uint32(target - m.here(len(code)))
	code = append([]byte(nil), code...)
	binary.LittleEndian.PutUint32(code[off:], d)
	m.emit(code...)
}

// ripRelative emits an instruction with a RIP-relative operand.
func (m *mover) ripRelative() error {
	i := m.cur
	t, _ := i.RIPTarget(i.at, i.code)
	if m.reaches(t, 0) {
		m.point(Main, 0)
		m.redisplace(i.code, t)
		m.point(After, 0)
		return nil
	}
	segment := i.Prefixes&(PrefixFS|PrefixGS) != 0
	switch {
	case i.Flags.Has(LEA) && i.REX&REXW != 0:
		m.point(Main, 0)
		m.movabs(i.RegField(), t)
		return nil
	case i.Flags.Any(Jmp|Call|Push|Pop) && segment:
		return m.refuse("it uses the stack and a thread-local operand that is out of reach")
	case i.Flags.Has(Call):
		return m.refuse("the pointer that it calls through is out of reach")
	case i.Flags.Has(Jmp):
		return m.jmpRIP(t)
	case i.Flags.Any(Push|Pop) && i.Prefixes&PrefixOpSize != 0:
		return m.refuse("a 16-bit push or pop of an operand that is out of reach")
	case i.Flags.Has(Push):
		m.pushRIP(t)
		return nil
	case i.Flags.Has(Pop):
		m.popRIP(t)
		return nil
	}
	return m.spill(t)
}

// movabs emits mov r64, imm64.
func (m *mover) movabs(r Reg, v uint64) {
	m.emit(0x48|byte(r>>3), 0xb8|byte(r&7))
	m.emit64(v)
}

// save leaves the red zone, pushes a register and loads it with the target.
// Behind it rsp is skip+8 lower and the register's value at rsp.
func (m *mover) save(s Reg, target uint64) {
	m.point(Before, 0)
	m.emit(0x48, 0x8d, 0x64, 0x24, 0x100-skip) // lea rsp, [rsp-128]
	m.point(Before, skip)
	m.emit(0x50 | byte(s))
	m.pointScratch(Before, skip+8, s, 0)
	m.movabs(s, target)
}

// spill runs the instruction with a register that it doesn't use in the place of
// rip.
func (m *mover) spill(target uint64) error {
	i := m.cur
	used := i.Regs()
	if used.Has(RSP) {
		return m.refuse("it uses the stack pointer and an operand that is out of reach")
	}
	s := NoReg
	for _, r := range [...]Reg{RSI, RDI, RBX} {
		if !used.Has(r) {
			s = r
			break
		}
	}
	if s == NoReg {
		return m.refuse("it leaves no register free to reach its operand with")
	}
	m.save(s, target)
	m.pointScratch(Main, skip+8, s, 0)
	m.emit(i.withBase(i.code, s)...)
	m.pointScratch(After, skip+8, s, 0)
	m.emit(0x58 | byte(s))
	m.point(After, skip)
	m.emit(0x48, 0x8d, 0xa4, 0x24, skip, 0, 0, 0) // lea rsp, [rsp+128]
	m.point(After, 0)
	return nil
}

// withBase returns the instruction with [s] for its RIP-relative operand. s is
// one of rbx, rsi, rdi, which need neither SIB nor displacement nor REX.B.
func (i Inst) withBase(code []byte, s Reg) []byte {
	out := append([]byte(nil), code[:i.DispOff]...)
	out[i.ModRMOff] = i.ModRM&0x38 | byte(s)
	switch {
	case i.Encoding == Legacy || i.Encoding == AMD3DNow:
		if i.Prefixes&PrefixREX != 0 {
			out[i.PrefixLen+i.rexSkip(code)] &^= REXB
		}
	case i.Encoding == VEX && code[i.OpcodeOff-2] == 0xc5:
		// The short form has no B.
	case i.Encoding == EVEX:
		out[i.OpcodeOff-3] |= 1 << 5
	default:
		out[i.OpcodeOff-2] |= 1 << 5
	}
	return append(out, code[i.DispOff+4:]...)
}

// rexSkip counts the REX bytes behind the legacy prefixes that other REX bytes
// make void.
func (i Inst) rexSkip(code []byte) uint8 {
	n := i.PrefixLen
	for code[n+1]&0xf0 == 0x40 {
		n++
	}
	return n - i.PrefixLen
}

// loadPointer reads the quadword at the target into the one at rsp, which is
// then skip+8 lower; all registers are right again.
func (m *mover) loadPointer(target uint64) {
	m.save(RBX, target)
	m.pointScratch(Main, skip+8, RBX, 0)
	m.emit(0x48, 0x8b, 0x1b) // mov rbx, [rbx]
	m.pointScratch(Before, skip+8, RBX, 0)
	m.emit(0x48, 0x87, 0x1c, 0x24) // xchg rbx, [rsp]
}

// jmpRIP is jmp [rip+d]: the target is pushed and returned to. A shadow stack would not allow
// it.
func (m *mover) jmpRIP(target uint64) error {
	if m.opts.KeepCall {
		return m.refuse("the pointer that it jumps through is out of reach")
	}
	m.loadPointer(target)
	m.point(Before, skip+8)
	m.emit(0xc2, skip, 0) // ret 128
	return nil
}

func (m *mover) pushRIP(target uint64) {
	m.loadPointer(target)
	m.point(Before, skip+8)
	m.emit(0x8f, 0x44, 0x24, skip-8) // pop [rsp+120]: the slot below the old top
	m.point(Before, skip)
	m.emit(0x48, 0x8d, 0x64, 0x24, skip-8) // lea rsp, [rsp+120]
	m.point(After, 0)
}

func (m *mover) popRIP(target uint64) {
	const s = RBX
	m.save(s, target)
	m.pointScratch(Before, skip+8, s, 0)
	m.emit(0xff, 0xb4, 0x24, skip+8, 0, 0, 0) // push [rsp+136]: the old top
	m.pointScratch(Main, skip+16, s, 8)
	m.emit(0x8f, 0x03) // pop [rbx]
	m.pointScratch(After, skip+16, s, 0)
	m.emit(0x58 | byte(s))
	m.point(After, skip+8)
	m.emit(0x48, 0x8d, 0xa4, 0x24, skip+8, 0, 0, 0) // lea rsp, [rsp+136]
	m.point(After, 0)
}
