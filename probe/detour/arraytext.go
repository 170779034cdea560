package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
)

// arrayText is the offset, in an array's temporaries, of the characters that a filter compares as text.
// The text's own temporaries (textAddr, textWord) are before them; a word of zeros follows them.
const arrayText = 16

// earlyArray copies an array of characters into temporaries, and finds the end of its text. Changes all
// textRegs, CX and DX.
func (b *builder) earlyArray(a *fetch.ArgProgram, off int) {
	n := int(a.Type.Count)
	wipe := func() {
		b.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
		for i := 0; i <= a.Size; i += 8 {
			b.Store(asm.W64, b.frame.temp(off+arrayText+i), asm.DX)
		}
	}
	wipe()
	b.faulted(off)
	b.withFault(b.frame.temp(b.layout.bits+bitWord(a)), a.FaultBit, func(fault asm.Label) {
		undo := b.NewLabel()
		b.value(&a.Chain, fault)
		m := b.guard(a.StoreOff, fault)
		b.canRead(m, n, fault)
		for i := 0; i < n; {
			w := asm.W64
			for int(w) > n-i {
				w >>= 1
			}
			b.mayFault(undo)
			b.Load(w, asm.DX, m.Plus(int32(i)))
			b.Store(w, b.frame.temp(off+arrayText+i), asm.DX)
			i += int(w)
		}
		b.Lea(asm.DI, b.frame.temp(off+arrayText))
		b.Store(asm.W64, b.frame.temp(off+textAddr), asm.DI)
		b.scan(fault, 0, fetch.MaxString) // no fault can happen: the stack can be read
		b.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
		b.Store(asm.W64, b.frame.temp(off+textWord), asm.DX)
		b.later(func() {
			b.Bind(undo)
			wipe()
			b.Jmp(fault)
		})
	})
}
