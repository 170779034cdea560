package detour

import (
	"kprobe/probe/asm"
)

// redZone is the memory below SP that code may use without moving SP (System V
// ABI, AMD64 supplement, 3.2.2).
const redZone = 128

// RedZone is how far below the site's stack pointer a detour's frame begins.
const RedZone = redZone

// frame is what a detour puts on the program's stack. From the top: the red zone, which is left
// alone; the saved registers; the flags; temporaries; and at the bottom what shared code uses.
type frame struct {
	skip  int       // bytes skipped first: redZone, or what stands there already
	regs  []asm.Reg // saved, in order
	temps int       // bytes of temporaries, a multiple of 8
	under int       // bytes that shared code uses, from SP on, a multiple of 8
	at    [16]int32 // depth of a saved register, 0: not saved
	flags int32     // depth of the flags word
	size  int       // depth of the whole frame
	marks []mark    // changes of the frame, by offset
	cur   mark      // what the frame is now
	start mark      // what it is before the prologue
	body  mark      // what it is between prologue and epilogue
	code  *asm.Code
	steps []step // pushes of the prologue
	// flagsDead says that the flags needn't be saved.
	flagsDead bool
	// scratch may be nil.
	scratch *Scratch
}

// Push is an instruction of a prologue that writes to the stack, where there may be none. Depth
// is how much lower the stack pointer is there than at the site or, for a Return trampoline,
// than after the return. AX says that rax no longer has its value from there, and that the
// prologue's first push has written it.
type Push struct {
	At         uint64
	Depth      int
	AX         bool
	Trampoline bool
}

// step is a Push of a detour, off from its base.
type step struct {
	off, depth     int32
	ax, trampoline bool
}

// baseRegs are the registers that every detour uses.
func baseRegs() []asm.Reg { return []asm.Reg{asm.AX, asm.CX, asm.DX, asm.SI} }

// textRegs are those that texts use besides.
func textRegs() []asm.Reg { return []asm.Reg{asm.DI, asm.R8, asm.R9, asm.R10, asm.R11} }

func (f *frame) mark() {
	f.cur.off = int32(f.code.Len())
	if f.marks == nil {
		f.marks, f.steps = f.scratch.take()
	}
	f.marks = append(f.marks, f.cur) // the marks share the slice saved, which only grows and shrinks at its end
}

// outside marks that what follows is not in the frame.
func (f *frame) outside(c *asm.Code) {
	f.code = c
	was := f.cur.flags
	f.cur.flags = flagsGone
	f.mark()
	f.cur.flags = was
}

// save emits the prologue. Its pushes write the highest and the lowest word of the frame, which
// is smaller than a page. So if the stack has no room for it, the thread faults at one of them.
func (f *frame) save(c *asm.Code) {
	f.code = c
	f.cur.depth = int32(f.skip)
	if f.skip == redZone {
		f.cur.depth = 0
	}
	f.mark()
	f.start = f.cur
	if f.skip == redZone {
		f.lower(redZone)
	}
	f.cur.saved = make([]slot, 0, len(f.regs)+1)
	for _, r := range f.regs {
		f.step()
		f.push(r)
	}
	if !f.flagsDead {
		f.saveFlags()
	}
	if n := f.temps + f.under; n > 0 {
		if n > 32 {
			f.lower(n - 8)
			n = 8
		}
		for ; n > 0; n -= 8 { // shorter than moving the stack pointer
			f.step()
			c.Push(asm.AX) // any value: only the room is needed
			f.cur.depth += 8
			f.mark()
		}
	}
	f.size = int(f.cur.depth)
	f.body = f.cur
}

// saveFlags pushes the flags. Changes AX.
func (f *frame) saveFlags() {
	c := f.code
	// lahf saves all arithmetic flags except OF. The detour changes no other flags.
	c.Lahf()
	c.Set(asm.O, asm.AX)
	f.cur.flags = flagsInAX
	f.mark()
	f.step()
	c.Push(asm.AX)
	f.cur.depth += 8
	f.flags, f.cur.word = f.cur.depth, f.cur.depth
	f.cur.flags = flagsSaved
	f.mark()
}

// restoreFlags pops what saveFlags has pushed. Changes AX.
func (f *frame) restoreFlags() {
	c := f.code
	c.Pop(asm.AX)
	f.cur.depth -= 8
	f.cur.flags = flagsInAX
	f.mark()
	c.OpImm(asm.Add, asm.W8, asm.AX, 127) // sets OF if al is 1
	f.cur.flags = flagsAdded
	f.mark()
	c.Sahf()
	f.cur.flags = flagsLive
	f.mark()
}

// step notes the push that is emitted next.
func (f *frame) step() {
	if f.skip == 0 {
		return // code without a red zone (Go's) has checked that there is stack
	}
	f.steps = append(f.steps, step{int32(f.code.Here() - f.code.Base()), f.cur.depth, f.cur.flags != flagsLive, f.cur.trampoline})
}

// lower makes room for n bytes below the stack pointer, or frees it if n is negative.
func (f *frame) lower(n int) {
	if n == 0 {
		return
	}
	f.code.Lea(asm.SP, asm.At(asm.SP, int32(-n)))
	f.cur.depth += int32(n)
	f.mark()
}

// push saves a register.
func (f *frame) push(r asm.Reg) {
	f.code.Push(r)
	f.cur.depth += 8
	f.at[r] = f.cur.depth
	f.cur.saved = append(f.cur.saved[:len(f.cur.saved):len(f.cur.saved)], slot{r, f.cur.depth})
	f.mark()
}

// reload loads saved registers again, at the bottom of the frame. A push that follows may find no room: then a
// fallback handler restores no register but rax, and that only where flags are saved (PushFault).
func (f *frame) reload(regs ...asm.Reg) {
	for _, r := range regs {
		if m, ok := f.slot(r); ok {
			f.code.Load(asm.W64, r, m)
		}
	}
}

// took marks that one more probe of the site has taken its hit.
func (f *frame) took() {
	f.body.taken++
	f.cur.taken = f.body.taken
	f.mark()
}

// writing marks how far the record has got.
func (f *frame) writing(w Writing) {
	if f.body.writing == w && f.cur.writing == w {
		return
	}
	f.body.writing, f.cur.writing = w, w
	f.mark()
}

// keep marks that from here on the program's value of a register is in the temporary at off. back marks that
// the register has its value again.
func (f *frame) keep(r asm.Reg, off int) (back func()) {
	was := f.cur.saved
	f.cur.saved = append(was[:len(was):len(was)], slot{r, int32(f.size - f.under - off)})
	f.mark()
	return func() {
		f.cur.saved = was
		f.mark()
	}
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
	f.lower(-f.temps - f.under)
	if !f.flagsDead {
		f.restoreFlags()
	}
	for i := len(f.regs) - 1; i >= 0; i-- {
		c.Pop(f.regs[i])
		f.cur.depth -= 8
		f.cur.saved = f.cur.saved[:i]
		f.mark()
	}
	if f.skip == redZone {
		f.lower(-redZone)
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
