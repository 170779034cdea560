package insn

import "encoding/binary"

func (m *mover) jmpDirect() error {
	t, err := m.target()
	if err != nil {
		return err
	}
	m.point(Main, 0)
	if m.near(t, 6) {
		m.prefixed()
	}
	m.jump(t)
	return nil
}

// jcc becomes the form with rel32, or skips a far jump by the opposite
// condition.
func (m *mover) jcc() error {
	t, err := m.target()
	if err != nil {
		return err
	}
	cond := m.cur.Opcode & 15
	m.point(Main, 0)
	if m.near(t, 7) {
		m.prefixed()
		m.emit(0x0f, 0x80|cond)
		m.rel32(t, 0)
		return nil
	}
	m.emit(0x70|cond^1, farJump)
	m.pointIP(After, 0, NoReg, 0, m.originalTarget())
	m.emit(0xff, 0x25, 0, 0, 0, 0)
	m.emit64(t)
	return nil
}

func (m *mover) originalTarget() uint64 {
	t, _ := m.cur.Target(m.cur.at, m.cur.code)
	return t
}

// loop keeps its instruction, because only the processor knows how it counts: if it is taken,
// it skips a short jump and reaches the long jump to its target.
func (m *mover) loop() error {
	t, err := m.target()
	if err != nil {
		return err
	}
	m.point(Main, 0)
	m.prefixed()
	m.emit(m.cur.Opcode, 2)
	m.point(After, 0)
	m.emit(0xeb, 0)
	skip := len(m.buf)
	m.pointIP(After, 0, NoReg, 0, m.originalTarget())
	m.jump(t)
	m.buf[skip-1] = byte(len(m.buf) - skip)
	return nil
}

// callDirect pushes the original return address and jumps, or with KeepCall
// calls.
func (m *mover) callDirect() error {
	t, err := m.target()
	if err != nil {
		return err
	}
	if m.opts.KeepCall {
		m.point(Main, 0)
		if m.near(t, 5) {
			m.emit(0xe8)
			m.rel32(t, 0)
			m.point(After, 0)
			return nil
		}
		m.emit(0xff, 0x15, 2, 0, 0, 0)
		m.point(After, 0)
		m.emit(0xeb, 8)
		m.emit64(t)
		m.point(After, 0)
		return nil
	}
	m.point(Main, 0)
	m.pushLiteral(m.cur.next())
	m.point(Main, 8)
	m.jump(t)
	return nil
}

// callIndirect does the same for a call through a register or memory. A fault
// in reading the target leaves the return address below the stack pointer.
func (m *mover) callIndirect() error {
	i := m.cur
	if m.opts.KeepCall {
		if i.Flags.Has(RIPRel) {
			return m.ripRelative()
		}
		m.point(Main, 0)
		m.emit(i.code...)
		m.point(After, 0)
		return nil
	}
	if i.Flags.Has(RIPRel) {
		return m.callRIP()
	}
	code, err := m.asJump()
	if err != nil {
		return err
	}
	m.point(Main, 0)
	m.pushLiteral(i.next())
	m.point(Main, 8)
	m.emit(code...)
	return nil
}

// asJump turns FF /2 into FF /4 that runs when the return address is pushed.
func (m *mover) asJump() ([]byte, error) {
	i := m.cur
	code := append([]byte(nil), i.code...)
	code[i.ModRMOff] = i.ModRM&^0x38 | 4<<3
	if i.mod() == 3 {
		if i.rm() == RSP {
			return nil, m.refuse("a call through the stack pointer can't be moved")
		}
		return code, nil
	}
	base, index, _, disp, _ := i.Mem(i.code)
	if base != RSP {
		return code, nil
	}
	if index == NoReg && disp > -16 && disp < 0 {
		return nil, m.refuse("it calls through the slot that its return address goes to")
	}
	if !fits(disp + 8) {
		return nil, m.refuse("the displacement of a call through the stack doesn't allow another 8")
	}
	code[i.ModRMOff] = code[i.ModRMOff]&0x3f | 0x80
	code = append(code[:i.SIBOff+1], 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(code[i.SIBOff+1:], uint32(disp+8))
	if len(code) > MaxLen {
		return nil, m.refuse("a call through the stack has too many prefixes")
	}
	return code, nil
}

// callRIP is callIndirect for call [rip+d].
func (m *mover) callRIP() error {
	i := m.cur
	t, _ := i.RIPTarget(i.at, i.code)
	if m.reaches(t, 6) {
		m.point(Main, 0)
		m.pushLiteral(i.next())
		m.point(Main, 8)
		code := append([]byte(nil), i.code...)
		code[i.ModRMOff] = i.ModRM&^0x38 | 4<<3
		m.redisplace(code, t)
		return nil
	}
	if i.Prefixes&(PrefixFS|PrefixGS) != 0 {
		return m.refuse("a call through a thread-local pointer is out of reach")
	}
	// The pointer is read into the quadword at rsp-136, which is below the
	// caller's red zone and inside the callee's: no signal handler writes there
	// when rsp stands 8 lower.
	m.loadPointer(t)
	m.point(Before, skip+8)
	m.pushLiteral(i.next())
	m.point(Before, skip+16)
	m.emit(0x8f, 0x84, 0x24, skip, 0, 0, 0) // pop [rsp+128]: the slot of the return address
	m.point(Before, skip+8)
	m.emit(0x48, 0x8d, 0xa4, 0x24, skip, 0, 0, 0) // lea rsp, [rsp+128]
	m.point(Before, 8)
	m.emit(0xff, 0x64, 0x24, 0x100-skip) // jmp [rsp-128]
	return nil
}
