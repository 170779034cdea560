// Package debugreg knows what debug registers can watch, and finds the instruction that made an
// access, which the processor reports only afterwards. It touches no process.
package debugreg

import (
	"kprobe/fetch"
	"kprobe/probe/insn"
	"kprobe/symbols"
)

// Access is an access to memory that is watched, as the trap behind it tells of it.
type Access struct {
	Regs   *fetch.Regs // behind the instruction; IP is that of the next
	Lo, Hi uint64      // what is watched
}

// Did is an instruction that has accessed memory.
type Did struct {
	At            symbols.Addr
	Reads, Writes bool
	// Known says that it is that instruction for sure. If not, At is the instruction
	// behind it, and it may have read or written.
	Known bool
	// Sure says that the registers prove that it accessed just that memory.
	Sure bool
}

// Find tells which instruction it was; f are those of the function around it, nil
// where none is known. It is the one that ends where the trap was, if that accesses
// the memory: only what leads elsewhere (a call, a return, a jump through memory)
// traps behind another. A string instruction that repeats traps before its end.
func Find(f *insn.Function, a Access) Did {
	did := Did{At: symbols.Addr(a.Regs.IP), Reads: true, Writes: true}
	if f == nil {
		return did
	}
	if i, code, ok := f.At(a.Regs.IP); ok && i.Is(insn.RepString) && a.touches(i, code, a.Regs.IP, true) == yes {
		return a.found(a.Regs.IP, i, code, yes)
	}
	before, _ := f.Around(a.Regs.IP)
	i, code, ok := f.At(before)
	if !ok || before+uint64(i.Len) != a.Regs.IP || i.Flags.Any(leads) {
		return did
	}
	if !i.Flags.Any(insn.MemRead | insn.MemWrite) {
		return did
	}
	touches := a.touches(i, code, before, false)
	if touches == no {
		return did
	}
	return a.found(before, i, code, touches)
}

// leads are instructions behind which another than the next one runs.
const leads = insn.Call | insn.Ret | insn.Jmp | insn.FarBranch | insn.Syscall | insn.Trap

// found tells of an instruction that has accessed the memory: what it did there, where
// it accesses two places.
func (a *Access) found(at uint64, i insn.Inst, code []byte, touches answer) Did {
	did := Did{At: symbols.Addr(at), Reads: i.Flags.Has(insn.MemRead), Writes: i.Flags.Has(insn.MemWrite), Known: true, Sure: touches == yes}
	switch {
	case i.Flags.Any(insn.Push | insn.Pop):
		ea, known := a.address(i, code, at)
		operand := known && a.near(ea, 8)
		// A push reads its operand and writes the stack, a pop the other way round.
		did.Reads = operand == i.Flags.Has(insn.Push)
		did.Writes = !did.Reads
	case stringOp(i):
		source, dest := a.byPointers(i)
		writes := i.Opcode|1 == 0xa5 || i.Opcode|1 == 0xab
		if source != dest {
			did.Reads, did.Writes = source || !writes, dest && writes
		}
	}
	return did
}

// answer is whether an instruction has accessed memory, as far as the registers
// behind it tell.
type answer uint8

const (
	no answer = iota
	maybe
	yes
)

// widest is how many bytes an instruction accesses at most that isn't a state's
// save or restore (which goes further, and is taken to).
const widest = 64

// touches tells whether an instruction at an address has accessed the memory; again
// says that it has not ended, and repeats.
func (a *Access) touches(i insn.Inst, code []byte, at uint64, again bool) answer {
	if i.Flags.Any(insn.RepString) || stringOp(i) {
		return a.byString(i, again)
	}
	if _, _, _, _, ok := i.Mem(code); !ok {
		return a.implied(i, code)
	}
	if i.Encoding != insn.Legacy && gathers(i) {
		return maybe // by an index in a vector
	}
	ea, known := a.address(i, code, at)
	if !known {
		return maybe
	}
	if i.Flags.Any(insn.Push | insn.Pop) {
		// It has another operand, on the stack.
		if a.near(ea, 8) || a.near(a.Regs.GPR[insn.RSP]-8, 16) {
			return yes
		}
		return no
	}
	if a.near(ea, widest) {
		return yes
	}
	if bitString(i) || wide(i) {
		return maybe
	}
	return no
}

// address computes where the operand lies that ModRM names. known is false where the
// instruction has changed what its address was computed of.
func (a *Access) address(i insn.Inst, code []byte, at uint64) (ea uint64, known bool) {
	base, index, scale, disp, ok := i.Mem(code)
	if !ok {
		return 0, false
	}
	changed := i.RegsWritten()
	if i.Is(insn.RIPRel) {
		if ea, ok = i.RIPTarget(at, code); !ok {
			return 0, false
		}
	} else {
		if (base != insn.NoReg && changed.Has(base) || index != insn.NoReg && changed.Has(index)) && !a.byStack(i, base, index) {
			return 0, false
		}
		ea = uint64(disp)
		if base != insn.NoReg {
			ea += a.Regs.GPR[base]
		}
		if index != insn.NoReg {
			ea += a.Regs.GPR[index] * uint64(scale)
		}
		if i.Prefixes&insn.PrefixAddrSize != 0 {
			ea = uint64(uint32(ea))
		}
	}
	switch {
	case i.Prefixes&insn.PrefixFS != 0:
		ea += a.Regs.FSBase
	case i.Prefixes&insn.PrefixGS != 0:
		ea += a.Regs.GSBase
	}
	return ea, true
}

// byStack reports whether a register that the instruction changes is rsp alone,
// as push [rsp+8] does: it is near what it was.
func (a *Access) byStack(i insn.Inst, base, index insn.Reg) bool {
	return i.Flags.Any(insn.Push|insn.Pop) && base == insn.RSP && (index == insn.NoReg || !i.RegsWritten().Has(index))
}

// near reports whether n bytes at an address meet what is watched.
func (a *Access) near(at, n uint64) bool { return at < a.Hi && at+n > a.Lo }

// implied is of operands that no ModRM byte names: the stack's, and addresses in
// the instruction.
func (a *Access) implied(i insn.Inst, code []byte) answer {
	sp := a.Regs.GPR[insn.RSP]
	switch {
	case i.Flags.Has(insn.Push):
		return is(a.near(sp, 64)) // pusha is no more
	case i.Flags.Has(insn.Pop):
		return is(a.near(sp-16, 16))
	case i.Encoding == insn.Legacy && i.Map == 0 && i.Opcode >= 0xa0 && i.Opcode <= 0xa3: // mov by an address
		v := uint64(0)
		for k := int(i.ImmLen) - 1; k >= 0; k-- {
			v = v<<8 | uint64(code[int(i.ImmOff)+k])
		}
		if i.Prefixes&insn.PrefixFS != 0 {
			v += a.Regs.FSBase
		}
		return is(a.near(v, 8))
	}
	return maybe // leave, enter, xlat, maskmovdqu
}

func is(ok bool) answer {
	if ok {
		return yes
	}
	return no
}

// stringOp reports movs, cmps, stos, lods, scas.
func stringOp(i insn.Inst) bool {
	if i.Encoding != insn.Legacy || i.Map != 0 {
		return false
	}
	switch i.Opcode {
	case 0xa4, 0xa5, 0xa6, 0xa7, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf:
		return true
	}
	return false
}

// byString is of string instructions, which have moved rsi and rdi past what they
// accessed last.
func (a *Access) byString(i insn.Inst, again bool) answer {
	if !stringOp(i) {
		return maybe // ins and outs, which no program may execute
	}
	if source, dest := a.byPointers(i); source || dest {
		return yes
	}
	if i.Is(insn.RepString) && !again {
		return maybe // it went on past it
	}
	return no
}

// byPointers tells whether a string instruction has accessed the memory by rsi, its
// source, or by rdi.
func (a *Access) byPointers(i insn.Inst) (source, dest bool) {
	const backwards = 1 << 10 // DF
	n := uint64(1)
	switch {
	case i.Opcode&1 == 0:
	case i.REX&insn.REXW != 0:
		n = 8
	case i.Prefixes&insn.PrefixOpSize != 0:
		n = 2
	default:
		n = 4
	}
	// The processor may move more at a time, and tell of it late.
	reach := n
	if i.Is(insn.RepString) {
		reach = widest
	}
	at := func(r insn.Reg) bool {
		p := a.Regs.GPR[r]
		if a.Regs.Flags&backwards != 0 {
			return a.near(p+n, reach)
		}
		return a.near(p-reach, reach)
	}
	if i.Opcode|1 != 0xab && i.Opcode|1 != 0xaf {
		source = at(insn.RSI)
	}
	if i.Opcode|1 != 0xad {
		dest = at(insn.RDI)
	}
	return source, dest
}

// bitString reports bt, bts, btr and btc of a register's bit number, which may lie
// far from the operand's address.
func bitString(i insn.Inst) bool {
	if i.Encoding != insn.Legacy || i.Map != 1 {
		return false
	}
	switch i.Opcode {
	case 0xa3, 0xab, 0xb3, 0xbb:
		return true
	}
	return false
}

// wide reports what saves or restores more than 64 bytes: fxsave, xsave, and theirs.
func wide(i insn.Inst) bool {
	return i.Encoding == insn.Legacy && i.Map == 1 && (i.Opcode == 0xae || i.Opcode == 0xc7) ||
		i.Encoding == insn.Legacy && i.Map == 0 && (i.Opcode == 0xdd || i.Opcode == 0xd9)
}

// gathers reports vector instructions whose index is a vector: VSIB.
func gathers(i insn.Inst) bool {
	return i.SIBOff != 0 && i.Map == 2 && (i.Opcode >= 0x90 && i.Opcode <= 0x93 || i.Opcode >= 0xa0 && i.Opcode <= 0xa3 || i.Opcode == 0xc6 || i.Opcode == 0xc7)
}
