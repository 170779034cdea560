package insn

import "encoding/binary"

// mover emits the copy of a window.
type mover struct {
	to     uint64
	opts   Options
	window window
	starts []Start // of the round before
	asked  bool    // for starts
	now    []Start
	cur    placed
	buf    []byte
	points []Point
	falls  bool
	quads  []literal
}

// literal is a quadword after the code and the displacement that refers to it.
type literal struct {
	disp  int
	value uint64
}

func (m *mover) emit(b ...byte) { m.buf = append(m.buf, b...) }

func (m *mover) emit32(v uint32) { m.buf = binary.LittleEndian.AppendUint32(m.buf, v) }

func (m *mover) emit64(v uint64) { m.buf = binary.LittleEndian.AppendUint64(m.buf, v) }

// point describes the next instruction: what is to be added to rsp there, all
// registers being right.
func (m *mover) point(s State, addSP int16) { m.pointScratch(s, addSP, NoReg, 0) }

// pointScratch is point where a register's value lies at rsp + at.
func (m *mover) pointScratch(s State, addSP int16, scratch Reg, at int16) {
	ip := m.cur.at
	if s == After {
		ip = m.cur.next()
	}
	m.pointIP(s, addSP, scratch, at, ip)
}

func (m *mover) pointIP(s State, addSP int16, scratch Reg, at int16, ip uint64) {
	p := Point{Off: uint16(len(m.buf)), State: s, AddSP: addSP, Scratch: scratch, ScratchAt: at, IP: ip}
	if n := len(m.points); n > 0 && m.points[n-1].Off == p.Off {
		m.points[n-1] = p
		return
	}
	m.points = append(m.points, p)
}

// here is the address of the byte n behind the next one.
func (m *mover) here(n int) uint64 { return m.to + uint64(len(m.buf)+n) }

// near reports whether a 32-bit displacement whose instruction ends n bytes
// from here reaches the target.
func (m *mover) near(target uint64, n int) bool { return fits(int64(target - m.here(n))) }

// rel32 appends the displacement to the target of an instruction that ends with
// it, or n bytes behind it.
func (m *mover) rel32(target uint64, n int) { m.emit32(uint32(target - m.here(4+n))) }

// farJump is the size of jump where the target is out of reach.
const farJump = 14

// jump emits jmp rel32, or jmp [rip+0] and the address.
func (m *mover) jump(target uint64) {
	if m.near(target, 5) {
		m.emit(0xe9)
		m.rel32(target, 0)
		return
	}
	m.emit(0xff, 0x25, 0, 0, 0, 0)
	m.emit64(target)
}

// pushLiteral emits push [rip+x] of a quadword that literals lays down.
func (m *mover) pushLiteral(v uint64) {
	m.emit(0xff, 0x35)
	m.quads = append(m.quads, literal{len(m.buf), v})
	m.emit32(0)
}

func (m *mover) literals() {
	for _, q := range m.quads {
		binary.LittleEndian.PutUint32(m.buf[q.disp:], uint32(len(m.buf)-q.disp-4))
		m.emit64(q.value)
	}
	m.quads = nil
}

// target returns where a direct branch of the current instruction must go: to the copy, if the
// target is in the window.
func (m *mover) target() (uint64, error) {
	t, _ := m.cur.Target(m.cur.at, m.cur.code)
	if t <= m.window.from || t >= m.window.from+uint64(len(m.window.code)) {
		return m.lead(t), nil
	}
	for k, p := range m.window.insts {
		if p.at == t {
			m.asked = true
			return m.to + uint64(m.starts[k].Off), nil
		}
	}
	return 0, m.refuse("it branches between two instructions that are moved with it")
}

// lead is where a branch to an address outside of the window goes.
func (m *mover) lead(to uint64) uint64 {
	if other, ok := m.opts.Lead[to]; ok {
		return other
	}
	return to
}

// prefixed emits the prefixes of the current instruction that mean something to
// a direct branch: 67, by which jrcxz and loop count in ecx, and bnd. Hints and
// REX are dropped, since the longer form might not have room for them.
func (m *mover) prefixed() {
	if m.cur.Flags.Has(Loop) {
		if m.cur.Prefixes&PrefixAddrSize != 0 {
			m.emit(0x67)
		}
		return
	}
	if m.cur.Prefixes&PrefixRepne != 0 {
		m.emit(0xf2)
	}
}
