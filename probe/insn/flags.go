package insn

import "kprobe/probe/insn/internal/opcode"

// classFlags gives the flags of each class.
var classFlags = [64]Flags{
	opcode.Jcc:      RelBranch | CondBranch,
	opcode.Loop:     RelBranch | CondBranch | Loop,
	opcode.Jmp:      RelBranch | Jmp | Stops,
	opcode.Call:     RelBranch | Call,
	opcode.Ret:      Ret | Stops,
	opcode.JmpInd:   Jmp | IndirectJmp | Stops,
	opcode.CallInd:  Call | IndirectCall,
	opcode.JmpFar:   FarBranch | Stops,
	opcode.CallFar:  FarBranch,
	opcode.RetFar:   FarBranch | Stops,
	opcode.IRet:     FarBranch | Stops,
	opcode.Int3:     Trap,
	opcode.IntN:     Trap,
	opcode.Int1:     Trap,
	opcode.Syscall:  Syscall,
	opcode.Sysenter: Syscall,
	opcode.XBegin:   RelBranch | XBegin,
	opcode.Halt:     Halt | Stops,
	opcode.UD:       Undefined | Stops,
	opcode.NopOp:    Nop,
	opcode.Prefetch: Nop,
	opcode.LEA:      LEA,
	opcode.X87:      X87,
	opcode.Push:     Push,
	opcode.Pop:      Pop,
}

// near names the classes of near branches, which a 66 prefix makes doubtful.
const near = Jmp | Call | Ret | CondBranch | XBegin

// memFlags gives the accesses to an operand in memory, by the bits ERead and
// EWrite of its row.
var memFlags = [4]Flags{1: MemRead, 2: MemWrite, 3: MemRead | MemWrite}

// setFlags derives Flags from the opcode's row and the prefixes. mem says that
// ModRM names memory.
func (d *decoder) setFlags(row opcode.Attr, mem bool) {
	class := row.Class()
	f := d.Flags | classFlags[class]
	if row&opcode.Priv != 0 {
		f |= Priv
	}
	if mem {
		f |= memFlags[row>>opcode.EReadBit&3]
	}
	if row&opcode.MRead != 0 {
		f |= MemRead
	}
	if row&opcode.MWrite != 0 {
		f |= MemWrite
	}
	if d.Prefixes != 0 {
		if d.Prefixes&PrefixLock != 0 {
			f |= Lock
		}
		if row&opcode.Str != 0 && d.Prefixes&(PrefixRep|PrefixRepne) != 0 {
			f |= RepString
		}
		if d.Prefixes&PrefixOpSize != 0 && d.Encoding == Legacy && f&near != 0 {
			f |= Op16Branch
		}
	}
	switch class {
	case opcode.NopOp:
		f &^= MemRead | MemWrite
		if d.ModRMOff == 0 && d.REX&REXB != 0 {
			f &^= Nop // xchg r8, rax
		}
	case opcode.Hint:
		f &^= MemRead | MemWrite
		d.hint(&f)
	}
	d.Flags = f
	if row.WritesImplicitly(4) || row&opcode.NamedWrites != 0 && d.mayName(RSP) && d.RegsWritten().Has(RSP) {
		d.Flags |= WritesSP
	}
}

// mayName reports whether one of the fields that name registers has the number
// in its low three bits.
func (d *decoder) mayName(r Reg) bool {
	low := byte(r) & 7
	return d.ModRM&7 == low || d.ModRM>>3&7 == low || d.Opcode&7 == low || d.Vvvv&7 == low
}

// hint tells the forms of 0F 1E apart: endbr, rdssp, which writes a register
// where shadow stacks are on, and no-ops.
func (d *decoder) hint(f *Flags) {
	if d.Prefixes&PrefixRep != 0 && d.mod() == 3 {
		switch {
		case d.ModRM == 0xfa || d.ModRM == 0xfb:
			*f |= CET
		case d.ModRM>>3&7 == 1:
			return
		}
	}
	*f |= Nop
	d.attr &^= opcode.ERead | opcode.EWrite
}
