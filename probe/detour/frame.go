package detour

import (
	"kprobe/probe/asm"
)

// redZone is the memory below SP that code may use without moving SP (System V
// ABI, AMD64 supplement, 3.2.2).
const redZone = 128

// frame is what a detour puts on the program's stack: the red zone is left
// alone, then the saved registers, the flags, temporaries, and at the bottom what
// shared code uses.
type frame struct {
	skip  int       // bytes skipped first: redZone, or what stands there already
	regs  []asm.Reg // saved, in order
	temps int       // bytes of temporaries, a multiple of 8
	under int       // bytes below them that shared code uses, from SP on
	at    [16]int32 // depth of a saved register, 0: not saved
	flags int32     // depth of the flags word
	size  int       // depth of the whole frame
	marks []mark    // changes of the frame, by offset
	cur   mark      // what the frame is now
	body  mark      // what it is between prologue and epilogue
	code  *asm.Code
}

// baseRegs are the registers that every detour uses.
func baseRegs() []asm.Reg { return []asm.Reg{asm.AX, asm.CX, asm.DX, asm.SI} }

// textRegs are those that texts use besides.
func textRegs() []asm.Reg { return []asm.Reg{asm.DI, asm.R8, asm.R9, asm.R10, asm.R11} }

// usualMarks is how many marks most detours have at most.
const usualMarks = 32

func (f *frame) mark() {
	f.cur.off = int32(f.code.Len())
	if f.marks == nil {
		f.marks = make([]mark, 0, usualMarks)
	}
	f.marks = append(f.marks, f.cur) // saved is shared: it only grows and shrinks
}

// outside marks that what follows is not in the frame.
func (f *frame) outside(c *asm.Code) {
	f.code = c
	was := f.cur.flags
	f.cur.flags = flagsGone
	f.mark()
	f.cur.flags = was
}

// save emits the prologue.
func (f *frame) save(c *asm.Code) {
	f.code = c
	f.cur.depth = int32(f.skip)
	if f.skip == redZone {
		f.cur.depth = 0
		f.mark()
		c.Lea(asm.SP, asm.At(asm.SP, -redZone))
		f.cur.depth = redZone
	}
	f.mark()
	f.cur.saved = make([]slot, 0, len(f.regs))
	for _, r := range f.regs {
		c.Push(r)
		f.cur.depth += 8
		f.at[r] = f.cur.depth
		f.cur.saved = append(f.cur.saved, slot{r, f.cur.depth})
		f.mark()
	}
	// lahf keeps all arithmetic flags but OF; the others nobody changes here.
	c.Lahf()
	c.Set(asm.O, asm.AX)
	f.cur.flags = flagsInAX
	f.mark()
	c.Push(asm.AX)
	f.cur.depth += 8
	f.flags, f.cur.word = f.cur.depth, f.cur.depth
	f.cur.flags = flagsSaved
	f.mark()
	if n := f.temps + f.under; n > 0 {
		c.Lea(asm.SP, asm.At(asm.SP, int32(-n)))
		f.cur.depth += int32(n)
		f.mark()
	}
	f.size = int(f.cur.depth)
	f.body = f.cur
}

// inside marks that what follows is between prologue and epilogue.
func (f *frame) inside() {
	was := f.cur
	f.cur = f.body
	f.mark()
	f.cur = was
}

// restore emits the epilogue: SP is then where save found it.
func (f *frame) restore() {
	c := f.code
	if n := f.temps + f.under; n > 0 {
		c.Lea(asm.SP, asm.At(asm.SP, int32(n)))
		f.cur.depth -= int32(n)
		f.mark()
	}
	c.Pop(asm.AX)
	f.cur.depth -= 8
	f.cur.flags = flagsInAX
	f.mark()
	c.OpImm(asm.Add, asm.W8, asm.AX, 127) // OF again, if al is 1
	f.cur.flags = flagsAdded
	f.mark()
	c.Sahf()
	f.cur.flags = flagsLive
	f.mark()
	for i := len(f.regs) - 1; i >= 0; i-- {
		c.Pop(f.regs[i])
		f.cur.depth -= 8
		f.cur.saved = f.cur.saved[:i]
		f.mark()
	}
	if f.skip == redZone {
		c.Lea(asm.SP, asm.At(asm.SP, redZone))
		f.cur.depth = 0
		f.mark()
	}
}

// temp is the memory of the temporary at off.
func (f *frame) temp(off int) asm.Mem { return asm.At(asm.SP, int32(f.under+off)) }

// above is the memory at off bytes above the site's SP.
func (f *frame) above(off int64) asm.Mem { return asm.At(asm.SP, int32(int64(f.size)+off)) }

// slot is the memory of a saved register; ok is false for one that still has
// the program's value.
func (f *frame) slot(r asm.Reg) (m asm.Mem, ok bool) {
	if f.at[r] == 0 {
		return asm.Mem{}, false
	}
	return asm.At(asm.SP, int32(f.size)-f.at[r]), true
}
