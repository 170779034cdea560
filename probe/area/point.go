package area

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"kprobe/probe/insn"
	"kprobe/symbols"
)

// AtPoint undoes what a copy does around its instruction.
func AtPoint(pt insn.Point, regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	out := *regs
	if pt.Scratch != insn.NoReg {
		var b [8]byte
		if _, err := mem.ReadMemory(b[:], symbols.Addr(regs.Rsp)+symbols.Addr(pt.ScratchAt)); err != nil {
			return nil, false
		}
		setGPR(&out, pt.Scratch, binary.LittleEndian.Uint64(b[:]))
	}
	out.Rsp += uint64(pt.AddSP)
	out.Rip = pt.IP
	return &out, true
}

func setGPR(r *unix.PtraceRegs, reg insn.Reg, v uint64) {
	switch reg {
	case insn.RSI:
		r.Rsi = v
	case insn.RDI:
		r.Rdi = v
	case insn.RBX:
		r.Rbx = v
	}
}
