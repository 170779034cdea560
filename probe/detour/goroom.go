package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
)

// Offsets of the bounds of a goroutine's stack in runtime.g (runtime2.go).
const (
	gStackLo = 0
	gStackHi = 8
	gSchedSP = 56 // and of where it goes on, behind two guards, panic, defer and m
)

// lookMore is what must be free below the frame besides it: what is pushed for
// a moment, and what copies of displaced instructions may take.
const lookMore = 192

// look emits the look for room that Params.GoLook asks for. The label is where
// the int3 stands, nil without it. A goroutine that isn't there, or is none,
// faults at a load or fails the comparisons: neither has room.
func (b *builder) look() *asm.Label {
	if !b.p.GoLook {
		return nil
	}
	f := &b.frame
	f.code = b.Code
	f.mark()
	none, trap := b.NewLabel(), b.NewLabel()
	need := f.skip + 8*(len(f.regs)+1) + f.temps + f.under + lookMore
	b.keepFlags()
	b.Lea(asm.R12, asm.At(asm.SP, int32(-need)))
	b.Test(asm.W64, asm.R14, asm.R14)
	b.Jcc(asm.E, none)
	b.mayFault(none)
	b.OpLoad(asm.Cmp, asm.W64, asm.R12, asm.At(asm.R14, gStackLo))
	b.Jcc(asm.BE, none)
	b.mayFault(none)
	b.OpLoad(asm.Cmp, asm.W64, asm.SP, asm.At(asm.R14, gStackHi))
	b.Jcc(asm.AE, none)
	looking := f.cur
	b.flagsBack()
	b.cold = append(b.cold, func() {
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

// keepFlags saves the flags in r13, where Params.GoKeep says that they are not
// free. The stack must not be touched yet.
func (b *builder) keepFlags() {
	f := &b.frame
	if !b.p.GoKeep {
		return
	}
	b.Mov(asm.W64, asm.R13, asm.AX)
	f.cur.axInR13 = true
	f.mark()
	b.Lahf()
	b.Set(asm.O, asm.AX)
	b.XchgReg(asm.W64, asm.AX, asm.R13)
	f.cur.axInR13, f.cur.flags = false, flagsInR13
	f.mark()
}

// flagsBack puts back what keepFlags saved.
func (b *builder) flagsBack() {
	f := &b.frame
	if !b.p.GoKeep {
		return
	}
	b.XchgReg(asm.W64, asm.AX, asm.R13)
	f.cur.axInR13, f.cur.flags = true, flagsInAX
	f.mark()
	b.OpImm(asm.Add, asm.W8, asm.AX, 127)
	f.cur.flags = flagsAdded
	f.mark()
	b.Sahf()
	f.cur.flags = flagsLive
	f.mark()
	b.Mov(asm.W64, asm.AX, asm.R13)
	f.cur.axInR13 = false
	f.mark()
}

// checkLook says why a program can't be had behind a look for room, which
// changes r12, and r13 or the flags.
func checkLook(prog *fetch.Program, keep bool) error {
	changed := func(r fetch.Reg) bool {
		return r == fetch.R12 || keep && r == fetch.R13 || !keep && r == fetch.RegFlags
	}
	uses := func(c *fetch.Chain) bool {
		reg := c.Source == fetch.SourceReg || c.Source == fetch.SourceComputed && c.From == fetch.SourceReg
		if reg && changed(c.Reg) {
			return true
		}
		for i := range c.Steps {
			if c.Steps[i].FromReg && changed(c.Steps[i].Reg) {
				return true
			}
		}
		return false
	}
	for i := range prog.Args {
		if uses(&prog.Args[i].Chain) || prog.Args[i].Len != nil && uses(prog.Args[i].Len) {
			if keep {
				return unsupported("it reads r12 or r13, which are used to look for room on the stack")
			}
			return unsupported("it reads r12 or the flags, which are used to look for room on the stack")
		}
	}
	return nil
}
