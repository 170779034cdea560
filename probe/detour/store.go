package detour

import (
	"slices"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// early computes the values that the filter uses, and measures the texts, into temporaries.
func (b *builder) early() {
	l := &b.layout
	if l.bits >= 0 {
		for i := 0; i < b.prog.Bitmap; i += 8 {
			b.StoreImm(asm.W64, b.frame.temp(l.bits+i), 0)
		}
	}
	if l.texts && l.only < 0 && !b.probe.CountOnly {
		b.StoreImm(asm.W64, b.frame.temp(l.total), int32(b.prog.Fixed))
	}
	if sometimes(b.prog) {
		b.StoreImm(asm.W64, b.frame.temp(l.want), 0)
	}
	if l.named {
		b.threadName(l.name)
	}
	if l.now >= 0 {
		b.nanoseconds(asm.CX, l.now+8)
		b.Store(asm.W64, b.frame.temp(l.now), asm.AX)
	}
	for i := range b.prog.Args {
		off, ok := l.early[i]
		if !ok {
			continue
		}
		a := &b.prog.Args[i]
		if texts(a) > 0 {
			b.measure(a, off)
			continue
		}
		if a.Type.IsArray() {
			b.earlyArray(a, off)
			continue
		}
		if a.FaultBit >= 0 {
			b.StoreImm(asm.W64, b.frame.temp(off), 0)
		}
		b.withFault(b.frame.temp(l.bits+bitWord(a)), a.FaultBit, func(fault asm.Label) {
			b.scalar(a, fault)
			b.Store(asm.W64, b.frame.temp(off), asm.AX)
		})
	}
}

// late writes the argument data of the record at CX.
func (b *builder) late() {
	l := &b.layout
	if l.bits >= 0 {
		for i := 0; i < b.prog.Bitmap; i += 8 {
			b.Load(asm.W64, asm.AX, b.frame.temp(l.bits+i))
			b.Store(asm.W64, data(i), asm.AX)
		}
	}
	if l.texts && l.only < 0 {
		b.MovImm(asm.R8, uint64(b.prog.Fixed)) // offset of the next text
	}
	if sometimes(b.prog) {
		b.OpLoad(asm.Add, asm.W64, asm.R8, b.frame.temp(l.want))
	}
	for i := range b.prog.Args {
		a := &b.prog.Args[i]
		off, early := l.early[i]
		switch {
		case isPath(a):
			b.copyPath(off, a.Slot)
		case texts(a) > 0:
			for n := range texts(a) {
				b.copyText(off+16*n, a.Slot+8*n)
			}
		case early && a.Type.IsArray():
			for n := 0; n < a.Size; n += 8 {
				b.Load(asm.W64, asm.AX, b.frame.temp(off+arrayText+n))
				b.Store(asm.W64, data(a.Slot+n), asm.AX)
			}
		case early:
			b.Load(asm.W64, asm.AX, b.frame.temp(off))
			b.Store(asm.W64, data(a.Slot), asm.AX)
		case a.Source == fetch.SourceTime && l.now < 0:
			// commit fills it in
		case a.Store == fetch.StoreParts:
			b.withFault(data(bitWord(a)), a.FaultBit, func(fault asm.Label) { b.parts(a, fault) })
		case a.Type.IsArray():
			b.withFault(data(bitWord(a)), a.FaultBit, func(fault asm.Label) { b.array(a, fault) })
		default:
			b.withFault(data(bitWord(a)), a.FaultBit, func(fault asm.Label) {
				b.scalar(a, fault)
				b.Store(asm.W64, data(a.Slot), asm.AX)
			})
		}
	}
}

// data is the memory at an offset of the data of the record at CX.
func data(off int) asm.Mem { return asm.At(asm.CX, int32(ring.DataOff+off)) }

// bitWord is the offset of the word that holds an argument's fault bit.
func bitWord(a *fetch.ArgProgram) int { return max(a.FaultBit, 0) / 64 * 8 }

// withFault calls emit for code that may continue at fault. There the fault bit is set in word, and the value stays
// zero.
func (b *builder) withFault(word asm.Mem, bit int, emit func(fault asm.Label)) {
	fault := b.NewLabel()
	before := b.mayFail
	emit(fault)
	if b.mayFail == before {
		return // no branch leads to fault
	}
	back := b.Mark()
	b.later(func() {
		b.Bind(fault)
		if bit >= 0 {
			b.BtsImm(asm.W64, word, uint8(bit%64))
		}
		b.Jmp(back)
	})
}

// parts writes the pieces of a value, each from a chain of its own. After a fault the slot is zero.
func (b *builder) parts(a *fetch.ArgProgram, fault asm.Label) {
	undo := b.NewLabel()
	before := b.mayFail
	for i := 0; i < a.Size; i += 8 {
		if !slices.ContainsFunc(a.Parts, func(p fetch.Part) bool { return p.Off == i && p.Size == 8 }) {
			b.StoreImm(asm.W64, data(a.Slot+i), 0)
		}
	}
	for i := range a.Parts {
		p := &a.Parts[i]
		b.value(&p.Chain, undo)
		b.Store(asm.Width(p.Size), data(a.Slot+p.Off), asm.AX)
	}
	if b.mayFail == before {
		return
	}
	b.later(func() {
		b.Bind(undo)
		b.clear(a.Slot, a.Size)
		b.Jmp(fault)
	})
}

// array copies the elements at the chain's value plus StoreOff. After a fault the slot is zero.
func (b *builder) array(a *fetch.ArgProgram, fault asm.Label) {
	n := int(a.Type.Count) * int(a.Type.Size)
	undo := b.NewLabel()
	b.value(&a.Chain, fault)
	m := b.guard(a.StoreOff, fault)
	b.canRead(m, n, fault)
	if n > 8 || n&(n-1) != 0 { // more than one load
		b.later(func() {
			b.Bind(undo)
			if n >= unrolled {
				b.Load(asm.W64, asm.SI, b.frame.temp(b.layout.area))
			}
			b.clear(a.Slot, a.Size)
			b.Jmp(fault)
		})
	} else {
		undo = fault
	}
	i := 0
	if n >= unrolled {
		i = n &^ 7
		b.copyWords(m, a.Slot, i, undo)
	}
	for i < n {
		w := asm.W64
		for int(w) > n-i {
			w >>= 1
		}
		b.mayFault(undo)
		b.Load(w, asm.DX, m.Plus(int32(i)))
		b.Store(w, data(a.Slot+i), asm.DX)
		i += int(w)
	}
}

// unrolled is the size in bytes from which on an array is copied by a loop.
const unrolled = 48

// copyWords copies n bytes, a multiple of 8, from m, which is based on AX, to
// the record's data at off. SI is the index meanwhile. Changes DX.
func (b *builder) copyWords(m asm.Mem, off, n int, fault asm.Label) {
	keep := b.frame.temp(b.layout.area)
	b.Store(asm.W64, keep, asm.SI)
	b.MovImm(asm.SI, uint64(int64(-n)))
	loop := b.Mark()
	b.mayFault(fault)
	b.Load(asm.W64, asm.DX, m.Plus(int32(n)).By(asm.SI, 1))
	b.Store(asm.W64, data(off+n).By(asm.SI, 1), asm.DX)
	b.OpImm(asm.Add, asm.W64, asm.SI, 8)
	b.Jcc(asm.NE, loop)
	b.Load(asm.W64, asm.SI, keep)
}

// clear makes n bytes of the record's data zero again. Changes AX.
func (b *builder) clear(off, n int) {
	if n < unrolled {
		b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
		for i := 0; i < n; i += 8 {
			b.Store(asm.W64, data(off+i), asm.AX)
		}
		return
	}
	b.MovImm(asm.AX, uint64(int64(-n)))
	loop := b.Mark()
	b.StoreImm(asm.W64, data(off+n).By(asm.AX, 1), 0)
	b.OpImm(asm.Add, asm.W64, asm.AX, 8)
	b.Jcc(asm.NE, loop)
}
