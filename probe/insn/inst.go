package insn

import (
	"encoding/binary"
	"errors"

	"kprobe/probe/insn/internal/opcode"
)

// MaxLen is the longest that an instruction can be, in bytes.
const MaxLen = 15

// ErrTruncated says that the bytes end inside an instruction.
var ErrTruncated = errors.New("instruction is cut off")

// ErrUndefined says that the bytes are no instruction: the processor would raise #UD, or this
// decoder doesn't know the opcode.
var ErrUndefined = errors.New("not an instruction")

// ErrReserved says that the bytes have an encoding that is specified but not decoded here: REX2
// and EVEX map 4 (APX).
var ErrReserved = errors.New("reserved encoding (APX)")

// Encoding is the scheme that an instruction's opcode is written in.
type Encoding uint8

// Encodings. The zero Encoding is Legacy.
const (
	Legacy Encoding = iota
	VEX
	EVEX
	XOP
	AMD3DNow // 0F 0F, the opcode behind the operands
)

// Prefixes is a set of prefix bytes.
type Prefixes uint16

// Members of Prefixes.
const (
	PrefixOpSize   Prefixes = 1 << iota // 66
	PrefixAddrSize                      // 67
	PrefixRepne                         // F2
	PrefixRep                           // F3
	PrefixLock                          // F0
	PrefixCS                            // 2E
	PrefixSS                            // 36
	PrefixDS                            // 3E
	PrefixES                            // 26
	PrefixFS                            // 64
	PrefixGS                            // 65
	PrefixREX                           // 40 to 4F, the last byte before the opcode
)

// Bits of Inst.REX.
const (
	REXB = 1 << iota
	REXX
	REXR
	REXW
)

// Inst is one decoded instruction. All offsets are in bytes from its first
// byte; an offset of 0 means that it has no such field.
type Inst struct {
	Len       uint8 // 1 to 15
	OpcodeOff uint8 // of Opcode; after 0F, 0F 38, VEX and so on
	ModRMOff  uint8
	SIBOff    uint8
	DispOff   uint8 // of the displacement of a memory operand
	DispLen   uint8 // 1 or 4
	ImmOff    uint8 // of the immediate, a branch's displacement, or a moffs address
	ImmLen    uint8 // 1, 2, 3 (enter), 4 or 8
	PrefixLen uint8 // of the legacy prefixes, REX not counted

	Encoding Encoding
	Prefixes Prefixes
	// REX holds W, R, X and B in its low four bits, from REX, VEX, EVEX or XOP.
	REX byte
	// Map is 0 for one-byte opcodes, 1 for 0F, 2 for 0F 38, 3 for 0F 3A; for VEX,
	// EVEX and XOP the map's number.
	Map    byte
	Opcode byte
	ModRM  byte
	SIB    byte
	// Vvvv is the register of VEX.vvvv, 0 to 15; meaningful where one is used.
	Vvvv  byte
	Flags Flags

	attr opcode.Attr
}

// Flags says what an instruction is and does.
type Flags uint32

// Members of Flags.
const (
	RIPRel       Flags = 1 << iota // has a memory operand relative to its end
	RelBranch                      // direct near branch: jmp, jcc, call, loop, jrcxz, xbegin
	CondBranch                     // jcc, loop or jrcxz
	Loop                           // loop, loope, loopne, jrcxz, jecxz: only rel8 exists
	Call                           // near call, direct or not
	Ret                            // near return
	Jmp                            // near jmp, direct or not
	IndirectJmp                    // near jmp through register or memory
	IndirectCall                   // near call through register or memory
	Syscall                        // syscall or sysenter
	Trap                           // int3, int1, int n
	Priv                           // privileged, or depends on privilege: faults in user mode
	RepString                      // string instruction with REP or REPNE
	Lock                           // LOCK prefix
	MemRead                        // reads memory
	MemWrite                       // writes memory
	WritesSP                       // changes rsp
	CET                            // endbr32 or endbr64
	Nop                            // changes nothing but rip
	Halt                           // hlt
	FarBranch                      // far jmp, call or return, iret
	XBegin                         // xbegin: also a RelBranch
	Undefined                      // ud0, ud1, ud2: raises #UD on purpose
	Stops                          // control never goes on behind it
	Op16Branch                     // near branch with 66: makers disagree
	Push                           // push of any kind
	Pop                            // pop of any kind
	LEA                            // lea
	X87                            // x87, which records its own address
)

// Has reports whether all of the members are in the set.
func (f Flags) Has(members Flags) bool { return f&members == members }

// Any reports whether one of the members is in the set.
func (f Flags) Any(members Flags) bool { return f&members != 0 }

// Is reports whether all of the given flags are set.
func (i Inst) Is(members Flags) bool { return i.Flags&members == members }

// RegField is the field reg of ModRM with its REX bit: a register, or a part of the opcode.
func (i Inst) RegField() Reg { return Reg(i.ModRM>>3&7 | i.REX&REXR<<1) }

// mod and rm give the other fields of ModRM with their REX bits.
func (i Inst) mod() byte { return i.ModRM >> 6 }
func (i Inst) rm() Reg   { return Reg(i.ModRM&7 | i.REX&REXB<<3) }

// WritesFlags reports whether the instruction changes a status flag, or may.
func (i Inst) WritesFlags() bool { return i.attr&opcode.FWrite != 0 }

// Signed returns the instruction's immediate, or a branch's displacement, with
// its sign. ok is false if there is none, or code is too short to hold it.
func (i Inst) Signed(code []byte) (v int64, ok bool) {
	return field(code, i.ImmOff, i.ImmLen)
}

// Disp returns the displacement of the memory operand with its sign, as it is in the bytes:
// that of EVEX is not scaled.
func (i Inst) Disp(code []byte) (v int64, ok bool) {
	return field(code, i.DispOff, i.DispLen)
}

func field(code []byte, off, size uint8) (int64, bool) {
	if off == 0 || int(off)+int(size) > len(code) {
		return 0, false
	}
	switch size {
	case 1:
		return int64(int8(code[off])), true
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(code[off:]))), true
	}
	var v uint64
	for k := range size {
		v |= uint64(code[off+k]) << (8 * k)
	}
	shift := 64 - 8*uint(size)
	return int64(v<<shift) >> shift, true
}

// Target returns where a direct branch goes when the instruction lies at the
// address at. ok is false for every other instruction.
func (i Inst) Target(at uint64, code []byte) (target uint64, ok bool) {
	if i.Flags&RelBranch == 0 {
		return 0, false
	}
	d, ok := i.Signed(code)
	return at + uint64(i.Len) + uint64(d), ok
}

// RIPTarget returns the address of a RIP-relative operand when the instruction lies at the
// address at, without the base of an FS or GS prefix. With a 67 prefix it has 32 bits. ok is
// false if there is no such operand.
func (i Inst) RIPTarget(at uint64, code []byte) (target uint64, ok bool) {
	if i.Flags&RIPRel == 0 {
		return 0, false
	}
	d, ok := i.Disp(code)
	target = at + uint64(i.Len) + uint64(d)
	if i.Prefixes&PrefixAddrSize != 0 {
		target = uint64(uint32(target))
	}
	return target, ok
}
