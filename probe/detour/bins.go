package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Bins makes a detour count its hits by a number, in a row of bins (ring.Bins) of its CPU, by
// locked instructions. If the number can't be read, or has no bin, the hit leaves a record.
type Bins struct {
	Arg   int // the number's argument
	Form  ring.Form
	Shift uint8 // of ring.FormShift
	Row   int64 // ring.Layout.RowOff
}

// CanBin reports whether detours can count hits of a program by an argument.
func CanBin(prog *fetch.Program, arg int) bool {
	if arg < 0 || arg >= len(prog.Args) || prog.Stack != nil || HasTexts(prog) {
		return false
	}
	a := &prog.Args[arg]
	return !a.Type.IsArray() && a.Type.Layout == nil && (a.Store == fetch.StoreValue || a.Store == fetch.StoreMem)
}

// bins counts the hit in a bin and continues at done. If the number has no bin, it continues at other. SI
// is the CPU's area.
func (b *builder) bins(x *Bins, done, other asm.Label) {
	if b.layout.texts || !fits(x.Row+ring.BinRow) || !CanBin(b.prog, x.Arg) {
		b.fail(unsupported("bins of that value"))
		return
	}
	if b.seq {
		b.area()
	}
	b.binned(x.Arg, other)
	b.bin(x, other)
	b.Lock()
	b.IncMem(asm.W64, asm.Indexed(asm.SI, asm.DX, 8, int32(x.Row+ring.BinsOff)))
	b.frame.took()
	if x.Form == ring.FormFine {
		b.Lock()
		b.OpStore(asm.Add, asm.W64, asm.At(asm.SI, int32(x.Row+ring.BinSum)), asm.AX)
		b.largest(int32(x.Row + ring.BinMost))
		b.Not(asm.W64, asm.AX)
		b.largest(int32(x.Row + ring.BinLeast))
	}
	b.countLocked(b.probe.ID, ring.CounterHits)
	b.Jmp(done)
}

// recordLater emits, out of the way, the code that records a hit of the current probe, and returns its
// label.
func (b *builder) recordLater(done asm.Label) asm.Label {
	other := b.NewLabel()
	of := *b
	b.later(func() {
		probe, prog, layout, seq := b.probe, b.prog, b.layout, b.seq // the site's last probe's by then
		b.probe, b.prog, b.layout, b.seq = of.probe, of.prog, of.layout, of.seq
		b.Bind(other)
		b.reserve(done)
		b.late()
		b.commit()
		b.Jmp(done)
		b.probe, b.prog, b.layout, b.seq = probe, prog, layout, seq
	})
	return other
}

// binned loads the number that is counted into AX, or continues at other. Changes DX.
func (b *builder) binned(arg int, other asm.Label) {
	a := &b.prog.Args[arg]
	off, early := b.layout.early[arg]
	if !early {
		b.scalar(a, other)
		return
	}
	if a.FaultBit >= 0 {
		b.TestMemImm(asm.W8, b.frame.temp(b.layout.bits+a.FaultBit/8), 1<<(a.FaultBit%8))
		b.Jcc(asm.NE, other)
	}
	b.Load(asm.W64, asm.AX, b.frame.temp(off))
}

// bin computes the bin of the number in AX into DX, as ring.Form.Bin does, or continues at other. Changes
// CX; changes AX only if the form keeps no sum.
func (b *builder) bin(x *Bins, other asm.Label) {
	small := b.NewLabel()
	switch x.Form {
	case ring.FormLog2:
		b.OpImm(asm.Sub, asm.W64, asm.AX, 1)
		b.OpImm(asm.Adc, asm.W64, asm.AX, 0) // 0 stays 0
		b.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
		b.Test(asm.W64, asm.AX, asm.AX)
		b.Jcc(asm.E, small)
		b.Bsr(asm.W64, asm.DX, asm.AX)
		b.OpImm(asm.Add, asm.W32, asm.DX, 1)
		b.Bind(small)
	case ring.FormShift:
		if x.Shift > 0 {
			b.ShiftImm(asm.Shr, asm.W64, asm.AX, x.Shift)
		}
		b.OpImm(asm.Cmp, asm.W64, asm.AX, ring.BinCells)
		b.Jcc(asm.AE, other)
		b.Mov(asm.W64, asm.DX, asm.AX)
	default:
		const sub = 6
		b.Mov(asm.W64, asm.DX, asm.AX)
		b.OpImm(asm.Cmp, asm.W64, asm.AX, 2<<sub)
		b.Jcc(asm.B, small)
		b.Bsr(asm.W64, asm.CX, asm.AX)
		b.OpImm(asm.Sub, asm.W32, asm.CX, sub)
		b.OpImm(asm.Cmp, asm.W32, asm.CX, ring.FineBits-sub)
		b.Jcc(asm.AE, other)
		b.ShiftCL(asm.Shr, asm.W64, asm.DX)
		b.ShiftImm(asm.Shl, asm.W32, asm.CX, sub)
		b.Op(asm.Add, asm.W32, asm.DX, asm.CX)
		b.Bind(small)
	}
}

// largest stores AX into a word of the area if AX is larger than the word. Changes CX, DX.
func (b *builder) largest(off int32) {
	m, more := asm.At(asm.SI, off), b.NewLabel()
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, m)
	b.Jcc(asm.A, more)
	back := b.Mark()
	b.later(func() {
		b.Bind(more)
		b.Mov(asm.W64, asm.CX, asm.AX)
		again, out := b.Mark(), b.NewLabel()
		b.Load(asm.W64, asm.AX, m)
		b.Op(asm.Cmp, asm.W64, asm.CX, asm.AX)
		b.Jcc(asm.BE, out)
		b.Lock()
		b.Cmpxchg(asm.W64, m, asm.CX)
		b.Jcc(asm.NE, again)
		b.Bind(out)
		b.Mov(asm.W64, asm.AX, asm.CX)
		b.Jmp(back)
	})
}
