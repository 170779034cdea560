package vars

import (
	"encoding/binary"

	"kprobe/fetch"
)

// instruction is an opcode's surroundings: its prefixes and its operands.
type instruction struct {
	rex       byte
	wide      bool // prefix 66
	prefix    byte // f2, f3 or 0
	mod       byte
	reg, rm   int // with mod 3, rm is a register
	base      fetch.Reg
	disp      int64
	inFrame   bool // the operand is in memory, at disp from rsp or rbp
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

// size returns the number of bytes of an operand that isn't a single byte.
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

// byteRegister reports whether a byte operand is the low byte of its register.
func (i *instruction) byteRegister(reg int) bool { return i.rex != 0 || reg < 4 }
