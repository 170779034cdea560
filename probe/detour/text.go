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

// The temporaries of a text: where it lies, and its word without the offset.
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
	all := b.NewLabel() // the address of the texts can't be had
	b.value(&a.Chain, all)
	b.addTo(a.StoreOff)
	if a.Store == fetch.StoreString {
		word := b.NewLabel()
		b.Mov(asm.W64, asm.DI, asm.AX)
		b.scan(all, func() { b.orFault(all, word) })
		b.setText(off, asm.B, word)
		return
	}
	for i := range n {
		b.element(off, i, n, all)
	}
	done := b.Mark()
	b.cold = append(b.cold, func() {
		b.Bind(all)
		for i := range n {
			b.faulted(off + 16*i)
		}
		b.Jmp(done)
	})
}

// counted finds the place of a text whose length is told, and sees that it can
// be read: it reaches into two pages at most. Changes all textRegs.
func (b *builder) counted(a *fetch.ArgProgram, off int) {
	bad, read := b.NewLabel(), b.NewLabel()
	b.value(&a.Chain, bad)
	b.addTo(a.StoreOff)
	b.Store(asm.W64, b.frame.temp(off+textAddr), asm.AX)
	b.value(a.Len, bad)
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.S, bad)
	b.Mov(asm.W64, asm.DX, asm.AX)
	whole := b.NewLabel()
	b.OpImm(asm.Cmp, asm.W64, asm.AX, fetch.MaxString)
	b.JccShort(asm.BE, whole)
	b.MovImm(asm.DX, textTruncated|fetch.MaxString)
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
	b.mayFault(bad)
	b.LoadZX(asm.W8, asm.AX, asm.At(asm.DI, 0))
	b.mayFault(bad)
	b.LoadZX(asm.W8, asm.AX, asm.Indexed(asm.DI, asm.R9, 1, -1))
	b.Bind(read)
	word := b.NewLabel()
	b.setText(off, asm.BE, word)
	b.cold = append(b.cold, func() { b.orFault(bad, word) })
}

// element measures the text that the i-th of the n addresses at AX points to.
func (b *builder) element(off, i, n int, all asm.Label) {
	if i == 0 {
		// All addresses first: one that can't be read faults the whole.
		m := b.guard(0, all)
		for k := range n {
			b.mayFault(all)
			b.Load(asm.W64, asm.DX, m.Plus(int32(8*k)))
			b.Store(asm.W64, b.frame.temp(off+16*k+textAddr), asm.DX)
		}
	}
	bad, word := b.NewLabel(), b.NewLabel()
	b.Load(asm.W64, asm.DI, b.frame.temp(off+16*i+textAddr))
	b.scan(bad, func() { b.orFault(bad, word) })
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

// scan makes DX the upper half of the text word of the text at DI: its length
// up to NUL, or textTruncated and fetch.MaxString. It reads aligned words, so
// no page is touched that the text doesn't reach. One that can't be read goes on at
// fault, which island, if any, emits in between. Changes AX, CX, R8 … R11.
func (b *builder) scan(fault asm.Label, island func()) {
	loop, found, long, done := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.Lea(asm.AX, asm.At(asm.DI, -lowest))
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, 47)
	b.Jcc(asm.NE, fault)
	b.MovAbs(asm.R10, 0x0101010101010101)
	b.Mov(asm.W64, asm.R11, asm.R10)
	b.ShiftImm(asm.Shl, asm.W64, asm.R11, 7) // 0x8080…
	b.Mov(asm.W32, asm.CX, asm.DI)
	b.ShiftImm(asm.Shl, asm.W32, asm.CX, 3)
	b.Mov(asm.W64, asm.R8, asm.DI)
	b.OpImm(asm.And, asm.W64, asm.R8, -8)
	// Bytes before the text in its first word count as not zero. Shifts take
	// the count modulo 64.
	b.OpImm(asm.Or, asm.W64, asm.R9, -1)
	b.ShiftCL(asm.Shl, asm.W64, asm.R9)
	b.Not(asm.W64, asm.R9)
	b.mayFault(fault)
	b.Load(asm.W64, asm.AX, asm.At(asm.R8, 0))
	b.Op(asm.Or, asm.W64, asm.AX, asm.R9)
	b.Lea(asm.DX, asm.At(asm.DI, fetch.MaxString)) // the end at the latest
	// A byte of x is zero if its top bit is set in (x - 0x01…) & ^x & 0x80…;
	// the lowest one found is exact.
	b.Bind(loop)
	b.Mov(asm.W64, asm.R9, asm.AX)
	b.Not(asm.W64, asm.R9)
	b.Op(asm.Sub, asm.W64, asm.AX, asm.R10)
	b.Op(asm.And, asm.W64, asm.AX, asm.R9)
	b.Op(asm.And, asm.W64, asm.AX, asm.R11)
	b.JccShort(asm.NE, found)
	b.OpImm(asm.Add, asm.W64, asm.R8, 8)
	b.Op(asm.Cmp, asm.W64, asm.R8, asm.DX)
	b.JccShort(asm.AE, long)
	b.mayFault(fault)
	b.Load(asm.W64, asm.AX, asm.At(asm.R8, 0))
	b.Jmp(loop)
	b.Bind(found)
	b.Bsf(asm.W64, asm.AX, asm.AX)
	b.ShiftImm(asm.Shr, asm.W32, asm.AX, 3)
	b.Op(asm.Add, asm.W64, asm.R8, asm.AX)
	b.Op(asm.Cmp, asm.W64, asm.R8, asm.DX)
	b.JccShort(asm.AE, long)
	b.Mov(asm.W64, asm.DX, asm.R8)
	b.Op(asm.Sub, asm.W32, asm.DX, asm.DI)
	b.Jmp(done)
	if island != nil {
		island()
	}
	b.Bind(long)
	b.MovImm(asm.DX, textTruncated|fetch.MaxString)
	b.Bind(done)
}

// setText keeps the text at DI with the upper half of its word in DX, and
// adds its length to the record's size. It is cut unless it fits the room that
// is left as k says: where reading stops there, nobody knows whether it ended.
// Other code may go on at word, with textFault in DX, instead.
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
	// In one piece: it is read back in one, soon.
	b.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
	b.Store(asm.W64, b.frame.temp(off+textWord), asm.DX)
}

// orFault is the code of a text that can't be had, at bad; it goes on at setText's
// word.
func (b *builder) orFault(bad, word asm.Label) {
	b.Bind(bad)
	b.MovImm(asm.DX, textFault)
	b.Jmp(word)
}

// mayOverflow reports whether a program's texts can exceed a record.
func mayOverflow(prog *fetch.Program) bool {
	n := prog.Fixed
	for i := range prog.Args {
		n += texts(&prog.Args[i]) * fetch.MaxString
	}
	return n > fetch.MaxData
}

// copyText writes the text that measure kept at off behind the others in the
// record at CX, and its word into slot. R8 is the offset of the next text, unless
// this is the only one. Changes AX, DX, DI, R9, R10, R11.
func (b *builder) copyText(off, slot int) {
	none, done, small, tiny := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	loop, tail, fault := b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.Load(asm.W64, asm.DX, b.frame.temp(off+textWord))
	b.Test(asm.W64, asm.DX, asm.DX)
	b.Jcc(asm.S, none)
	b.Load(asm.W64, asm.DI, b.frame.temp(off+textAddr))
	if b.layout.only >= 0 {
		b.Lea(asm.R9, data(b.prog.Fixed))
		b.OpImm(asm.Or, asm.W64, asm.DX, int32(b.prog.Fixed))
	} else {
		b.Lea(asm.R9, data(0).By(asm.R8, 1))
		b.Op(asm.Or, asm.W64, asm.DX, asm.R8)
	}
	b.Store(asm.W64, data(slot), asm.DX)
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, 32)
	b.MovZX(asm.W16, asm.DX, asm.DX)
	if b.layout.only < 0 {
		b.Op(asm.Add, asm.W64, asm.R8, asm.DX)
	}
	// DI = from, R9 = to, DX = length. Eight bytes at a time, the last eight
	// from the end back; four to seven by two that may overlap.
	b.OpImm(asm.Sub, asm.W32, asm.DX, 8)
	b.Jcc(asm.B, small)
	b.Op(asm.Xor, asm.W32, asm.R10, asm.R10)
	b.Bind(loop)
	b.Op(asm.Cmp, asm.W32, asm.R10, asm.DX)
	b.JccShort(asm.AE, tail)
	b.mayFault(fault)
	b.Load(asm.W64, asm.AX, asm.Indexed(asm.DI, asm.R10, 1, 0))
	b.Store(asm.W64, asm.Indexed(asm.R9, asm.R10, 1, 0), asm.AX)
	b.OpImm(asm.Add, asm.W32, asm.R10, 8)
	b.JmpShort(loop)
	b.Bind(tail)
	b.mayFault(fault)
	b.Load(asm.W64, asm.AX, asm.Indexed(asm.DI, asm.DX, 1, 0))
	b.Store(asm.W64, asm.Indexed(asm.R9, asm.DX, 1, 0), asm.AX)
	b.Jmp(done)

	b.Bind(small)
	b.OpImm(asm.Add, asm.W32, asm.DX, 8-4)
	b.Jcc(asm.S, tiny)
	b.mayFault(fault)
	b.Load(asm.W32, asm.R10, asm.At(asm.DI, 0))
	b.mayFault(fault)
	b.Load(asm.W32, asm.AX, asm.Indexed(asm.DI, asm.DX, 1, 0))
	b.Store(asm.W32, asm.At(asm.R9, 0), asm.R10)
	b.Store(asm.W32, asm.Indexed(asm.R9, asm.DX, 1, 0), asm.AX)
	b.Jmp(done)

	// Unmapped since it was measured: its room stays, unused.
	b.Bind(fault)
	b.MovImm(asm.DX, textFault)
	b.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
	b.Bind(none)
	b.Store(asm.W64, data(slot), asm.DX)
	b.Jmp(done)

	b.Bind(tiny)
	b.OpImm(asm.Add, asm.W32, asm.DX, 4)
	b.Jcc(asm.E, done)
	byByte := b.Mark()
	b.mayFault(fault)
	b.LoadZX(asm.W8, asm.AX, asm.Indexed(asm.DI, asm.DX, 1, -1))
	b.Store(asm.W8, asm.Indexed(asm.R9, asm.DX, 1, -1), asm.AX)
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.NE, byByte)
	b.Bind(done)
}
