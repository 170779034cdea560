package detour

import (
	"encoding/binary"
	"slices"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// hasLabel reports whether a chain looks for a label. This needs the registers that otherwise only texts use.
func hasLabel(c *fetch.Chain) bool {
	return slices.ContainsFunc(c.Steps, func(s fetch.Step) bool { return s.Op == fetch.StepLabel })
}

// label searches the list of labels at AX for one, and loads the address of its text into AX. Changes DX, DI
// and R8 to R10.
func (b *builder) label(s *fetch.Step, fault asm.Label) {
	m := b.guard(0, fault)
	b.mayRead(m.Plus(8), 8, fault)
	b.Load(asm.W64, asm.R8, m.Plus(8))
	b.mayRead(m, 8, fault)
	b.Load(asm.W64, asm.DI, m)
	b.Test(asm.W64, asm.R8, asm.R8)
	b.Jcc(asm.E, fault)
	few := b.NewLabel()
	b.OpImm(asm.Cmp, asm.W64, asm.R8, fetch.MaxLabels)
	b.JccShort(asm.BE, few)
	b.MovImm(asm.R8, fetch.MaxLabels)
	b.Bind(few)
	b.Mov(asm.W64, asm.AX, asm.DI)
	b.guard(0, fault)
	next := b.NewLabel()
	again := b.Mark()
	b.mayRead(asm.At(asm.DI, 8), 8, fault)
	b.OpMemImm(asm.Cmp, asm.W64, asm.At(asm.DI, 8), int32(len(s.Text)))
	b.Jcc(asm.NE, next)
	b.mayRead(asm.At(asm.DI, 0), 8, fault)
	b.Load(asm.W64, asm.R9, asm.At(asm.DI, 0))
	b.sameText(s.Text, next, fault)
	b.Lea(asm.AX, asm.At(asm.DI, fetch.LabelValue))
	found := b.NewLabel()
	b.JmpShort(found)
	b.Bind(next)
	b.OpImm(asm.Add, asm.W64, asm.DI, fetch.LabelPair)
	b.Dec(asm.W64, asm.R8)
	b.Jcc(asm.NE, again)
	b.Jmp(fault)
	b.Bind(found)
}

// sameText continues at other unless the bytes at R9 equal the text. Changes R10.
func (b *builder) sameText(text string, other, fault asm.Label) {
	for off := 0; off < len(text); {
		rest, at := []byte(text[off:]), asm.At(asm.R9, int32(off))
		if len(rest) >= 8 {
			b.MovImm(asm.R10, binary.LittleEndian.Uint64(rest))
		}
		size := 1
		switch {
		case len(rest) >= 8:
			size = 8
		case len(rest) >= 4:
			size = 4
		}
		b.mayRead(at, size, fault)
		switch size {
		case 8:
			b.OpLoad(asm.Cmp, asm.W64, asm.R10, at)
		case 4:
			b.OpMemImm(asm.Cmp, asm.W32, at, int32(binary.LittleEndian.Uint32(rest)))
		default:
			b.OpMemImm(asm.Cmp, asm.W8, at, int32(int8(rest[0])))
		}
		off += size
		b.Jcc(asm.NE, other)
	}
}
