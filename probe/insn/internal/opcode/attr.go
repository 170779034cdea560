// Package opcode holds the opcode maps of x86-64 as tables: what follows each
// opcode, and what the instruction reads and writes. The tables are generated
// from opcodes.table by the program in gen.
package opcode

//go:generate go run ./gen

// Attr says everything the decoder knows about one opcode. The zero Attr is an
// undefined opcode.
type Attr uint64

// Bits of an Attr. E is the operand of ModRM.rm, G that of ModRM.reg, V that of
// VEX.vvvv, O that of the opcode's low three bits. An access bit of G, V or O
// is set only where the operand is a general register.
const (
	ModRM Attr = 1 << iota
	ERead
	EWrite
	EGPR    // a register E is a general register
	EByte   // a register E without REX is al cl dl bl ah ch dh bh
	EReg    // mod = 3 is defined
	EMem    // mod < 3 is defined
	GRead   //
	GWrite  //
	GByte   // as EByte
	VRead   //
	VWrite  //
	ORead   //
	OWrite  //
	OByte   // as EByte
	FRead   // reads a flag
	FWrite  // writes a flag
	MRead   // reads memory that no ModRM names
	MWrite  // writes memory that no ModRM names
	Priv    // faults in user mode, or may
	Lock    // takes LOCK with a memory destination
	Str     // string instruction, takes REP
	Group   // the field of GroupIndex says which group holds the real Attr
	RegOnly // ModRM.mod is ignored: always a register
	PPNone  // defined without mandatory prefix
	PP66    // with 66
	PPF3    // with F3
	PPF2    // with F2
)

const (
	immShift   = 28
	classShift = 33
	groupShift = 39
	implRShift = 48
	implWShift = 56
	immMask    = 0x1f
	classMask  = 0x3f
	groupMask  = 0x3f
	implMask   = 0xff
	GroupSize  = 72 // 8 memory forms by ModRM.reg, 64 register forms by the low 6 bits of ModRM
	PPAll      = PPNone | PP66 | PPF3 | PPF2
)

// EReadBit is the place of ERead, behind which EWrite stands.
const EReadBit = 1

// NamedWrites are the writes of registers that the instruction names.
const NamedWrites = EWrite | GWrite | VWrite | OWrite

// WritesImplicitly reports whether register r, 0 to 7, is written without being
// named.
func (a Attr) WritesImplicitly(r int) bool { return a>>(implWShift+r)&1 != 0 }

// Map gives the number of the row of each opcode; 0 is the undefined row.
type Map [256]uint16

// At returns the row of an opcode.
func (m *Map) At(op byte) Attr { return Rows[m[op]] }

// InGroup returns the row of a ModRM byte in group g.
func InGroup(g int, modrm byte) Attr { return Rows[GroupRow(g, modrm)] }

// GroupRow gives the number of that row.
func GroupRow(g int, modrm byte) uint16 {
	if modrm >= 0xc0 {
		return Groups[g][8+int(modrm&0x3f)]
	}
	return Groups[g][modrm>>3&7]
}

// Imm is the kind of the bytes that follow ModRM and displacement.
type Imm uint8

// Kinds of immediate. The sizes in bytes are those of 64-bit mode.
const (
	ImmNone   Imm = iota
	ImmB          // 1
	ImmW          // 2
	ImmZ          // 4, with 66 and no REX.W 2
	ImmV          // 4, with 66 2, with REX.W 8
	ImmD          // 4
	ImmBB         // 1 + 1
	ImmWB         // 2 + 1: enter
	ImmMoffs      // an address: 8, with 67 4
	RelB          // branch displacement, 1
	RelZ          // branch displacement, 4 (with 66 too, as Intel's processors do)
	ImmEXTRQ      // 1 + 1 with 66 or F2, else none
	ImmSuffix     // 1, the opcode of 3DNow!
)

// Class is the kind of control flow or system effect of an instruction.
type Class uint8

// Classes.
const (
	Plain Class = iota
	Jcc
	Loop
	Jmp
	Call
	Ret
	JmpInd
	CallInd
	JmpFar
	CallFar
	RetFar
	IRet
	Int3
	IntN
	Int1
	Syscall
	Sysenter
	XBegin
	Halt
	UD
	NopOp
	Hint // 0F 1E: nop, endbr, rdssp
	LEA
	X87
	Push
	Pop
	Prefetch
)

// Imm returns the kind of immediate.
func (a Attr) Imm() Imm { return Imm(a >> immShift & immMask) }

// Class returns the class.
func (a Attr) Class() Class { return Class(a >> classShift & classMask) }

// GroupIndex returns the index into Groups.
func (a Attr) GroupIndex() int { return int(a >> groupShift & groupMask) }

// ImplicitRead returns the general registers read without being named, rax in
// bit 0.
func (a Attr) ImplicitRead() uint16 { return uint16(a >> implRShift & implMask) }

// ImplicitWrite returns the general registers written without being named.
func (a Attr) ImplicitWrite() uint16 { return uint16(a >> implWShift & implMask) }

// WithImm sets the kind of immediate of an Attr that has none.
func (a Attr) WithImm(i Imm) Attr { return a | Attr(i)<<immShift }

// WithClass sets the class.
func (a Attr) WithClass(c Class) Attr { return a | Attr(c)<<classShift }

// WithGroup makes a the reference to a group.
func (a Attr) WithGroup(i int) Attr { return a | Group | Attr(i)<<groupShift }

// WithRead adds the implicit read of register r, 0 to 7.
func (a Attr) WithRead(r int) Attr { return a | 1<<(implRShift+r) }

// WithWrite adds the implicit write of register r, 0 to 7.
func (a Attr) WithWrite(r int) Attr { return a | 1<<(implWShift+r) }
