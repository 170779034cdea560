package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
)

// textFault and textTruncated are fetch's bits in the upper half of a word.
const (
	textFault     = fetch.TextFault >> 32
	textTruncated = fetch.TextTruncated >> 32
	textLen       = 1<<16 - 1
)

// The temporaries of a text: its address, and its word without the offset.
const (
	textAddr = 0
	textWord = 8
)

// measure finds a text argument's place and length. Changes all textRegs.
func (b *builder) measure(a *fetch.ArgProgram, off int) {
	if isComm(a) {
		b.threadName(off)
		return
	}
	if isPath(a) {
		b.path(a, off)
		return
	}
	if a.Store == fetch.StoreText {
		text := []byte(a.Text)
		b.Lea(asm.DI, asm.Rel(b.data(text)))
		b.Store(asm.W64, b.frame.temp(off+textAddr), asm.DI)
		b.MovImm(asm.DX, uint64(len(text)))
		b.setText(off, asm.BE, b.NewLabel())
		return
	}
	if a.Store == fetch.StoreCounted {
		b.counted(a, off)
		return
	}
	n := texts(a)
	all := b.NewLabel() // continues here if the address of the texts can't be read
	b.value(&a.Chain, all)
	b.addTo(a.StoreOff)
	if a.Store == fetch.StoreString {
		word := b.NewLabel()
		b.Mov(asm.W64, asm.DI, asm.AX)
		b.scan(word, a.Max, a.TextMax())
		b.setText(off, endsAt(a), word)
		b.later(func() { b.orFault(all, word) })
		return
	}
	for i := range n {
		b.element(a, off, i, n, all)
	}
	done := b.Mark()
	b.later(func() {
		b.Bind(all)
		for i := range n {
			b.faulted(off + 16*i)
		}
		b.Jmp(done)
	})
}

// endsAt is the condition of the text's length under which setText takes the text as complete. A text that fills its
// array needs no NUL.
func endsAt(a *fetch.ArgProgram) asm.Cond {
	if a.Max > 0 {
		return asm.BE
	}
	return asm.B
}

// counted finds the address of a text with a given length, and checks that it can be read. Such a text lies in two
// pages at most. Changes all textRegs.
func (b *builder) counted(a *fetch.ArgProgram, off int) {
	bad, read := b.NewLabel(), b.NewLabel()
	negative := bad
	if a.Type.Base == fetch.Bytes {
		negative = b.NewLabel()
	}
	b.value(&a.Chain, bad)
	b.addTo(a.StoreOff)
	b.Store(asm.W64, b.frame.temp(off+textAddr), asm.AX)
	b.value(a.Len, bad)
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.S, negative)
	b.Mov(asm.W64, asm.DX, asm.AX)
	whole := b.NewLabel()
	most, size := int32(a.TextMax()), int32(a.TextMax())
	if a.Unit != 0 {
		most, size = int32(a.Max), int32(a.Max*a.Unit)
		b.ImulImm(asm.W32, asm.DX, asm.AX, int32(a.Unit))
	}
	b.OpImm(asm.Cmp, asm.W64, asm.AX, most)
	b.JccShort(asm.BE, whole)
	b.MovImm(asm.DX, textTruncated|uint64(size))
	b.Bind(whole)
	b.MovZX(asm.W16, asm.R9, asm.DX)
	if !b.probe.CountOnly && mayOverflow(b.prog) {
		// No more is read than the record takes.
		fits := b.NewLabel()
		b.MovImm(asm.CX, fetch.MaxData)
		b.OpLoad(asm.Sub, asm.W64, asm.CX, b.frame.temp(b.layout.total))
		b.Op(asm.Cmp, asm.W64, asm.R9, asm.CX)
		b.JccShort(asm.BE, fits)
		b.Mov(asm.W32, asm.R9, asm.CX)
		b.Mov(asm.W32, asm.DX, asm.CX)
		b.OpImm(asm.Or, asm.W32, asm.DX, textTruncated)
		b.Bind(fits)
	}
	b.Load(asm.W64, asm.DI, b.frame.temp(off+textAddr))
	b.Test(asm.W32, asm.R9, asm.R9)
	b.JccShort(asm.E, read)
	b.Lea(asm.AX, asm.At(asm.DI, -lowest))
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, 47)
	b.Jcc(asm.NE, bad)
	b.mayRead(asm.At(asm.DI, 0), 1, bad)
	b.LoadZX(asm.W8, asm.AX, asm.At(asm.DI, 0))
	b.mayRead(asm.Indexed(asm.DI, asm.R9, 1, -1), 1, bad)
	b.LoadZX(asm.W8, asm.AX, asm.Indexed(asm.DI, asm.R9, 1, -1))
	b.Bind(read)
	word := b.NewLabel()
	b.setText(off, asm.BE, word)
	done := b.Mark()
	b.later(func() {
		if negative != bad {
			b.Bind(negative)
			b.Load(asm.W64, asm.DX, b.frame.temp(off+textAddr))
			b.Mov(asm.W64, asm.AX, asm.DX)
			b.ShiftImm(asm.Shr, asm.W64, asm.AX, 47)
			b.Jcc(asm.NE, bad)
			b.Mov(asm.W64, asm.AX, asm.DX)
			b.ShiftImm(asm.Shr, asm.W64, asm.AX, 32)
			b.OpImm(asm.Or, asm.W32, asm.AX, textFault>>16)
			b.ShiftImm(asm.Shl, asm.W64, asm.AX, 48)
			b.Mov(asm.W32, asm.DX, asm.DX)
			b.Op(asm.Or, asm.W64, asm.DX, asm.AX)
			b.Store(asm.W64, b.frame.temp(off+textWord), asm.DX)
			b.Jmp(done)
		}
		b.orFault(bad, word)
	})
}

// element measures the text that the i-th of the n addresses at AX points to.
func (b *builder) element(a *fetch.ArgProgram, off, i, n int, all asm.Label) {
	if i == 0 {
		// Read all addresses first: if one can't be read, the whole argument is a fault.
		m := b.guard(0, all)
		b.canRead(m, 8*n, all)
		for k := range n {
			b.mayFault(all)
			b.Load(asm.W64, asm.DX, m.Plus(int32(8*k)))
			b.Store(asm.W64, b.frame.temp(off+16*k+textAddr), asm.DX)
		}
	}
	word := b.NewLabel()
	b.Load(asm.W64, asm.DI, b.frame.temp(off+16*i+textAddr))
	b.scan(word, 0, a.TextMax())
	b.setText(off+16*i, asm.B, word)
}

func (b *builder) faulted(off int) {
	b.StoreImm(asm.W32, b.frame.temp(off+textWord), 0)
	b.StoreImm(asm.W32, b.frame.temp(off+textWord+4), -1<<31)
}

// addTo adds an offset to AX. Changes DX.
func (b *builder) addTo(off int64) {
	switch {
	case off == 0:
	case fits(off):
		b.Lea(asm.AX, asm.At(asm.AX, int32(off)))
	default:
		b.MovImm(asm.DX, uint64(off))
		b.Op(asm.Add, asm.W64, asm.AX, asm.DX)
	}
}

// setText stores the address DI of a text, and its word, whose upper half is DX, into temporaries. It adds the
// length to the record's size. The text is truncated unless its length fits the remaining room, by
// condition k: if reading stopped at the end of the room, it isn't known whether the text ended there.
// Other code may continue at word instead, with textFault in DX.
func (b *builder) setText(off int, k asm.Cond, word asm.Label) {
	b.Store(asm.W64, b.frame.temp(off+textAddr), asm.DI)
	if !b.probe.CountOnly && b.layout.only < 0 && (!b.layout.named || off != b.layout.name) {
		b.MovZX(asm.W16, asm.AX, asm.DX)
		if mayOverflow(b.prog) {
			fits := b.NewLabel()
			b.MovImm(asm.CX, fetch.MaxData)
			b.OpLoad(asm.Sub, asm.W64, asm.CX, b.frame.temp(b.layout.total))
			b.Op(asm.Cmp, asm.W64, asm.AX, asm.CX)
			b.JccShort(k, fits)
			b.Mov(asm.W32, asm.AX, asm.CX)
			b.Lea(asm.DX, asm.At(asm.CX, 0))
			b.OpImm(asm.Or, asm.W32, asm.DX, textTruncated)
			b.Bind(fits)
		}
		b.OpStore(asm.Add, asm.W64, b.frame.temp(b.layout.total), asm.AX)
	}
	b.Bind(word)
	// One store, because one load reads it back soon.
	b.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
	b.Store(asm.W64, b.frame.temp(off+textWord), asm.DX)
}

// orFault emits the code at bad, for a text that can't be read. It continues at setText's word.
func (b *builder) orFault(bad, word asm.Label) {
	b.Bind(bad)
	b.MovImm(asm.DX, textFault)
	b.Jmp(word)
}

// mayOverflow reports whether a program's texts can exceed a record.
func mayOverflow(prog *fetch.Program) bool { return most(prog) > fetch.MaxData }

// most is how many bytes of data a program's record could have, if any number were possible.
func most(prog *fetch.Program) int {
	n := prog.Fixed
	for i := range prog.Args {
		n += texts(&prog.Args[i]) * prog.Args[i].TextMax()
	}
	return n
}
