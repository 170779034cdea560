package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
)

// Offsets of the bounds of a goroutine's stack in runtime.g (runtime2.go).
const (
	gStackLo = 0
	gStackHi = 8
	gSchedSP = 56 // g.sched.sp: after two guards, panic, defer and m
)

// lookMore is what must be free below the frame: for temporary pushes, and for copies of
// displaced instructions.
const lookMore = 192

// looks are the registers that a look for room uses.
type looks struct {
	with asm.Reg
	keep asm.Reg // has the flags meanwhile, if kept is set
	kept bool
}

// look emits the check for room that Params.Look asks for. The label is that of the int3; nil
// if there is no check. If there is no goroutine, or the address is not one, a load faults or
// the comparisons fail: neither has room.
func (b *builder) look() *asm.Label {
	l := b.p.Look
	if l == nil {
		return nil
	}
	f := &b.frame
	f.code = b.Code
	f.mark()
	none, trap := b.NewLabel(), b.NewLabel()
	need := int32(f.skip + 8*(len(f.regs)+1) + f.temps + f.under + lookMore)
	with := b.looks.with
	b.keepFlags()
	g := asm.R14
	if l.TLS != 0 {
		// One register must do for the goroutine and for the comparison.
		g = with
		b.mayFault(none)
		b.Load(asm.W64, g, asm.SegAbs(asm.FS, l.TLS))
	}
	b.Test(asm.W64, g, g)
	b.Jcc(asm.E, none)
	if l.TLS != 0 {
		b.mayFault(none)
		b.Load(asm.W64, with, asm.At(g, gStackLo))
		b.Lea(with, asm.At(with, need))
		b.Op(asm.Cmp, asm.W64, asm.SP, with)
	} else {
		b.Lea(with, asm.At(asm.SP, -need))
		b.mayFault(none)
		b.OpLoad(asm.Cmp, asm.W64, with, asm.At(g, gStackLo))
	}
	b.Jcc(asm.BE, none)
	if l.TLS != 0 {
		b.mayFault(none)
		b.Load(asm.W64, g, asm.SegAbs(asm.FS, l.TLS))
	}
	b.mayFault(none)
	b.OpLoad(asm.Cmp, asm.W64, asm.SP, asm.At(g, gStackHi))
	b.Jcc(asm.AE, none)
	looking := f.cur
	b.flagsBack()
	b.later(func() {
		was := f.cur
		f.cur = looking
		f.code = b.Code
		f.mark()
		b.Bind(none)
		b.flagsBack()
		f.outside(b.Code)
		b.Bind(trap)
		b.Int3()
		f.cur = was
		f.inside()
	})
	return &trap
}

// keepFlags saves the flags in a register, unless the program needs them no more. The stack must not be used
// yet.
func (b *builder) keepFlags() {
	f := &b.frame
	if !b.looks.kept {
		return
	}
	keep := b.looks.keep
	b.Mov(asm.W64, keep, asm.AX)
	f.cur.keep, f.cur.axKept = keep, true
	f.mark()
	b.Lahf()
	b.Set(asm.O, asm.AX)
	b.XchgReg(asm.W64, asm.AX, keep)
	f.cur.axKept, f.cur.flags = false, flagsKept
	f.mark()
}

// flagsBack restores what keepFlags saved.
func (b *builder) flagsBack() {
	f := &b.frame
	if !b.looks.kept {
		return
	}
	b.XchgReg(asm.W64, asm.AX, b.looks.keep)
	f.cur.axKept, f.cur.flags = true, flagsInAX
	f.mark()
	b.OpImm(asm.Add, asm.W8, asm.AX, 127)
	f.cur.flags = flagsAdded
	f.mark()
	b.Sahf()
	f.cur.flags = flagsLive
	f.mark()
	b.Mov(asm.W64, asm.AX, b.looks.keep)
	f.cur.axKept = false
	f.mark()
}

// planLook chooses the registers of the look for room. They must be free, and no program may read them, because
// a hit that the trap takes shows them. Registers that the detour itself uses are chosen last, because
// it saves them only after the look.
func (b *builder) planLook(probes []Probe) error {
	l := b.p.Look
	if l == nil {
		return nil
	}
	free, keep := l.Free&^(1<<asm.AX|1<<asm.SP), !l.Flags
	if l.TLS == 0 {
		free &^= 1 << asm.R14
	}
	for i := range probes {
		reads, _ := probes[i].Program.Registers()
		free &^= uint16(reads)
		keep = keep || reads&(1<<fetch.RegFlags) != 0
	}
	take := func() (asm.Reg, bool) {
		for _, r := range []asm.Reg{asm.R12, asm.R13, asm.R11, asm.R10, asm.R15, asm.R9, asm.R8, asm.BX, asm.DI, asm.SI, asm.DX, asm.CX, asm.BP, asm.R14} {
			if free>>r&1 != 0 {
				free &^= 1 << r
				return r, true
			}
		}
		return 0, false
	}
	var ok bool
	if b.looks.with, ok = take(); ok && keep {
		b.looks.kept = true
		b.looks.keep, ok = take()
	}
	if !ok {
		return unsupported("it reads registers that are needed to look for room on the stack")
	}
	return nil
}
