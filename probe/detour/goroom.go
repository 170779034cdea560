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
	none := b.NewLabel()
	need := f.skip + 8*(len(f.regs)+1) + f.temps + f.under + lookMore
	b.Lea(asm.R12, asm.At(asm.SP, int32(-need)))
	b.Test(asm.W64, asm.R14, asm.R14)
	b.Jcc(asm.E, none)
	b.mayFault(none)
	b.OpLoad(asm.Cmp, asm.W64, asm.R12, asm.At(asm.R14, gStackLo))
	b.Jcc(asm.BE, none)
	b.mayFault(none)
	b.OpLoad(asm.Cmp, asm.W64, asm.SP, asm.At(asm.R14, gStackHi))
	b.Jcc(asm.AE, none)
	b.cold = append(b.cold, func() {
		b.frame.outside(b.Code)
		b.Bind(none)
		b.Int3()
		b.frame.inside()
	})
	return &none
}

// checkLook says why a program can't be had behind a look for room, which
// changes r12 and the flags.
func checkLook(prog *fetch.Program) error {
	uses := func(c *fetch.Chain) bool {
		reg := c.Source == fetch.SourceReg || c.Source == fetch.SourceComputed && c.From == fetch.SourceReg
		if reg && (c.Reg == fetch.R12 || c.Reg == fetch.RegFlags) {
			return true
		}
		for i := range c.Steps {
			if c.Steps[i].FromReg && c.Steps[i].Reg == fetch.R12 {
				return true
			}
		}
		return false
	}
	for i := range prog.Args {
		if uses(&prog.Args[i].Chain) || prog.Args[i].Len != nil && uses(prog.Args[i].Len) {
			return unsupported("it reads r12 or the flags, which are used to look for room on the stack")
		}
	}
	return nil
}
