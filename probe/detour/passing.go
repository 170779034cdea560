package detour

import (
	"fmt"

	"kprobe/probe/asm"
)

// Passing is what happens to a call that is noted in Calls, other than its return.
//
// A function that ends in a jump to another one returns by that one's returns. Suppose that an
// exception or longjmp leaves such a call, and the same instruction then calls the other
// function with the same stack pointer. The returns can't tell these calls apart. So the jump
// marks the call's row as passing on, and the other function's entry accepts the mark, once.
type Passing uint8

// Ways of passing.
const (
	NotPassing Passing = iota
	PassesOn           // a jump to another function
	Arrives            // an entry that such jumps lead to; if none has marked the call, it was abandoned
)

// passedOn is the bit of a row's thread number that says that the call is passing on to another
// function. Thread numbers are below 1 << 22.
const passedOn = 1 << 31

// BuildPassing makes the detour of a jump, or of an entry, by which calls of k pass. PassesOn
// is for a jump that is taken if the condition is met, or always. tail emits the instructions.
func BuildPassing(base uint64, p *Params, k Calls, way Passing, cond asm.Cond, always bool, tail func(c *asm.Code) error) (*Detour, error) {
	return tight(base, p, func(c *asm.Code) (*Detour, error) { return buildPassing(c, p, k, way, cond, always, tail) })
}

// BuildJump is BuildPassing with PassesOn, for a jump that leaves functions whose calls are
// noted only there. They are the functions of probes, which count them. k.Joined says whether
// calls of other functions may come to the jump.
func BuildJump(base uint64, p *Params, probes []Probe, k Calls, cond asm.Cond, always bool, tail func(c *asm.Code) error) (*Detour, error) {
	return tight(base, p, func(c *asm.Code) (*Detour, error) { return buildJump(c, p, probes, k, cond, always, tail) })
}

func buildJump(c *asm.Code, p *Params, probes []Probe, k Calls, cond asm.Cond, always bool, tail func(c *asm.Code) error) (*Detour, error) {
	b := newBuilder(c, p)
	defer b.free()
	if err := k.check(); err != nil {
		return nil, err
	}
	if !k.Common {
		return nil, fmt.Errorf("calls %+v that a jump notes are in no table in common", k)
	}
	for i := range probes {
		if x := &probes[i]; !x.counts() || !x.Anywhere {
			return nil, fmt.Errorf("a jump notes calls of probe %d, which are not only counted", x.ID)
		}
	}
	if t := p.tallyOf(k); t != nil {
		on := b.beforeTally(cond, always)
		for i := range probes {
			k.Joined = k.Joined || i > 0
			b.noteByTally(&probes[i], k.noteBits(), t.jump)
		}
		b.Bind(on)
		return b.leave(b.Here(), tail)
	}
	b.frame.under = linkNote
	on, err := b.atJump(cond, always, asm.DI, asm.R11)
	if err != nil {
		return nil, err
	}
	for i := range probes {
		x := &probes[i]
		b.MovAbs(asm.R11, p.Flags+4*uint64(x.ID))
		b.Load(asm.W32, asm.R11, asm.At(asm.R11, 0))
		b.Lea(asm.DI, b.frame.above(0))
		b.MovAbs(asm.SI, k.Addr)
		b.owns, b.ownerBits = true, anywhere
		if k.Joined || i > 0 {
			b.ownerBits |= joinedOwner
		}
		b.lead(asm.At(asm.SI, headJump), b.NewLabel(), x)
		b.frame.took()
	}
	b.frame.restore()
	b.Bind(on)
	return b.leave(b.Here(), tail)
}

// atJump begins code at a jump, with registers that it changes. If the jump isn't taken, by
// cond, the code continues at on.
func (b *builder) atJump(cond asm.Cond, always bool, changed ...asm.Reg) (on asm.Label, err error) {
	if !b.p.NoRedZone {
		b.frame.skip = redZone
	}
	b.frame.regs = append(baseRegs(), changed...)
	if err := b.stack(); err != nil {
		return on, err
	}
	on = b.NewLabel()
	if !always {
		b.frame.code = b.Code
		b.frame.mark()
		b.Jcc(cond^1, on)
	}
	b.frame.save(b.Code)
	return on, nil
}

func buildPassing(c *asm.Code, p *Params, k Calls, way Passing, cond asm.Cond, always bool, tail func(c *asm.Code) error) (*Detour, error) {
	b := newBuilder(c, p)
	defer b.free()
	if err := k.check(); err != nil {
		return nil, err
	}
	if k.Go {
		return nil, unsupported("calls of Go don't pass on")
	}
	if k.Common {
		return b.passCommon(k, way, cond, always, tail)
	}
	b.frame.under = linkFind
	on, err := b.atJump(cond, always, asm.DI)
	if err != nil {
		return nil, err
	}
	e := &calling{returning: returning{b: b}, k: k}
	same, look, out, left := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	e.find(same, look, out)
	b.Load(asm.W32, asm.AX, asm.At(asm.CX, callTID))
	if way == PassesOn {
		b.Jcc(asm.NE, out) // not the call that was noted
		b.OpImm(asm.Or, asm.W32, asm.AX, -passedOn)
	} else {
		b.Jcc(asm.NE, left)
		b.Test(asm.W32, asm.AX, asm.AX)
		b.Jcc(asm.NS, left)
		b.OpImm(asm.And, asm.W32, asm.AX, passedOn-1)
	}
	b.Store(asm.W32, asm.At(asm.CX, callTID), asm.AX)
	b.Bind(out)
	b.frame.restore()
	b.later(func() {
		e.findFurther(same, look, out)
		b.Bind(left)
		b.freeRow()
		b.Jmp(out)
	})
	b.Bind(on)
	return b.leave(b.Here(), tail)
}

// Pass does what the code of BuildPassing does, in a copy of the calls' memory, and returns the
// rows whose marks have changed, and those that are free. Nothing else of them may be written back: other threads raise
// their reach, and take free rows, meanwhile.
func (k Calls) Pass(mem []byte, slot, ra uint64, way Passing) (marked, free []int) {
	for _, in := range k.With(mem, slot) {
		tid := mem[k.offset(in.Number)+callTID:]
		switch on := tid[3]&(passedOn>>24) != 0; {
		case way == PassesOn && in.Return != ra:
			continue
		case way == PassesOn:
			tid[3] |= passedOn >> 24
		case in.Return == ra && on:
			tid[3] &^= passedOn >> 24
		default:
			k.Free(mem, in.Number)
			free = append(free, in.Number)
			continue
		}
		marked = append(marked, in.Number)
	}
	return marked, free
}

// PassesOn reports whether the call in a row passes on, in a copy of the calls' memory.
func (k Calls) PassesOn(mem []byte, row int) bool {
	return mem[k.offset(row)+callTID+3]&(passedOn>>24) != 0
}

// Mark returns the address of the byte of a row whose highest bit says that its call passes on.
func (k Calls) Mark(row int) uint64 { return k.Addr + uint64(k.offset(row)) + callTID + 3 }

// Marked returns that byte, in a copy of the calls' memory.
func (k Calls) Marked(mem []byte, row int) byte { return mem[k.offset(row)+callTID+3] }

// ReturnAt returns the address of the word of a row that says what the call's slot held at the entry.
func (k Calls) ReturnAt(row int) uint64 { return k.Addr + uint64(k.offset(row)) + callReturn }
