package detour

import (
	"encoding/binary"
	"strings"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// A descriptor's path
//
// Only the kernel knows the path. A detour asks for it as the program would: by a readlink of
// /proc/self/fd/N, into a buffer of its own. This system call never waits, and is some 20 times cheaper
// than a breakpoint. If the path fills the buffer, the record gets room for the longest text, and the
// path is read once more, into the record.

// The temporaries of a path. Those of its text (textAddr, textWord) are before them.
const (
	pathFD   = 16 // the descriptor if the path is longer than the buffer, else -1
	pathBuf  = 24
	pathSize = 256
	pathTemp = pathBuf + pathSize
)

const (
	sysReadlink = 89
	fdFolder    = "/proc/self/fd/"
	// fdDigits is where the number ends in a buffer.
	fdDigits = len(fdFolder) + 8
)

// glibc's FILE (libio/bits/types/struct_FILE.h), as fetch's evaluator has it.
const (
	fileMagic = 0xfbad0000
	fileFD    = 112
	maxFD     = 1 << 20
)

// isPath reports whether an argument is a descriptor's path.
func isPath(a *fetch.ArgProgram) bool { return a.Store == fetch.StorePath }

// checkPath returns an error if a detour can't evaluate a predicate on a path. It has only the beginning of a
// long path.
func checkPath(q *fetch.Pred) error {
	if q.Cmp == fetch.CmpGlob && strings.IndexByte(q.Text, '*') != len(q.Text)-1 {
		return unsupported("a filter compares the end of a path with a pattern")
	}
	return nil
}

// path reads a descriptor's path. Changes all textRegs, CX and DX.
func (b *builder) path(a *fetch.ArgProgram, off int) {
	bad, long, done := b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.value(&a.Chain, bad)
	if a.Type.Base == fetch.FilePath {
		b.descriptorOf(bad)
	}
	b.OpImm(asm.Cmp, asm.W32, asm.AX, maxFD)
	b.Jcc(asm.AE, bad)
	b.Mov(asm.W32, asm.AX, asm.AX)
	b.Store(asm.W64, b.frame.temp(off+pathFD), asm.AX)
	b.Mov(asm.W64, asm.R8, asm.SI)
	b.readlink(off, func() {
		b.Lea(asm.SI, b.frame.temp(off+pathBuf))
		b.MovImm(asm.DX, pathSize)
	})
	b.Mov(asm.W64, asm.SI, asm.R8)
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.S, bad)
	b.Mov(asm.W64, asm.DX, asm.AX)
	b.OpImm(asm.Cmp, asm.W64, asm.AX, pathSize)
	b.Jcc(asm.E, long)
	b.StoreImm(asm.W64, b.frame.temp(off+pathFD), -1)
	ready := b.Mark()
	b.Lea(asm.DI, b.frame.temp(off+pathBuf))
	b.setText(off, asm.BE, b.NewLabel())
	b.Bind(done)
	b.later(func() {
		b.Bind(long)
		b.MovImm(asm.DX, fetch.MaxString)
		b.Jmp(ready)
		b.Bind(bad)
		b.StoreImm(asm.W64, b.frame.temp(off+pathFD), -1)
		b.faulted(off)
		b.Jmp(done)
	})
}

// descriptorOf replaces AX by the descriptor of the FILE that AX points to, unless AX is a descriptor itself.
// Changes DX.
func (b *builder) descriptorOf(bad asm.Label) {
	itself := b.NewLabel()
	b.OpImm(asm.Cmp, asm.W64, asm.AX, maxFD)
	b.Jcc(asm.B, itself)
	b.Mov(asm.W64, asm.DX, asm.AX)
	b.ShiftImm(asm.Sar, asm.W64, asm.DX, 32)
	b.OpImm(asm.Cmp, asm.W64, asm.DX, -1)
	b.Jcc(asm.E, itself)
	m := b.guard(0, bad)
	b.mayRead(m, 4, bad)
	b.Load(asm.W32, asm.DX, m)
	b.OpImm(asm.And, asm.W32, asm.DX, -0x10000)
	b.OpImm(asm.Cmp, asm.W32, asm.DX, fileMagic-1<<32)
	b.Jcc(asm.NE, bad)
	b.mayRead(m.Plus(fileFD), 4, bad)
	b.Load(asm.W32, asm.AX, m.Plus(fileFD))
	b.Bind(itself)
}

// readlink reads the path of the descriptor at off+pathFD. into sets SI to the buffer and DX to its size, and
// changes no other register. AX becomes the length, or is negative on an error. Changes DI, R9, R10,
// R11, CX and DX.
func (b *builder) readlink(off int, into func()) {
	b.Load(asm.W64, asm.AX, b.frame.temp(off+pathFD))
	b.Lea(asm.DI, b.frame.temp(off+pathBuf+fdDigits))
	b.StoreImm(asm.W8, asm.At(asm.DI, 0), 0)
	digit := b.Mark()
	b.MovImm(asm.R9, 0xcccccccd) // 2^35/10
	b.Imul(asm.W64, asm.R9, asm.AX)
	b.ShiftImm(asm.Shr, asm.W64, asm.R9, 35)
	b.ImulImm(asm.W32, asm.R10, asm.R9, 10)
	b.Op(asm.Sub, asm.W32, asm.AX, asm.R10)
	b.OpImm(asm.Add, asm.W32, asm.AX, '0')
	b.OpImm(asm.Sub, asm.W64, asm.DI, 1)
	b.Store(asm.W8, asm.At(asm.DI, 0), asm.AX)
	b.Mov(asm.W32, asm.AX, asm.R9)
	b.Test(asm.W32, asm.AX, asm.AX)
	b.Jcc(asm.NE, digit)
	const n = len(fdFolder)
	for _, at := range [...]int{0, n - 8} {
		b.MovImm(asm.R10, binary.LittleEndian.Uint64([]byte(fdFolder[at:])))
		b.Store(asm.W64, asm.At(asm.DI, int32(at-n)), asm.R10)
	}
	b.Lea(asm.DI, asm.At(asm.DI, int32(-n)))
	asked, refused := b.NewLabel(), b.NewLabel()
	b.mayAsk(AskHit, refused)
	b.strict()
	b.begin(refused)
	into()
	b.MovImm(asm.AX, sysReadlink)
	b.Syscall()
	b.asked()
	b.Bind(asked)
	b.later(func() {
		b.Bind(refused)
		b.MovImm(asm.AX, 1<<63)
		b.Jmp(asked)
	})
}

// copyPath is copyText for a path. Changes what that changes.
func (b *builder) copyPath(off, slot int) {
	long, done := b.NewLabel(), b.NewLabel()
	b.Load(asm.W64, asm.AX, b.frame.temp(off+pathFD))
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.NS, long)
	b.copyText(off, slot)
	b.Bind(done)
	b.later(func() {
		gone, fits := b.NewLabel(), b.NewLabel()
		b.Bind(long)
		area := b.frame.temp(b.layout.area)
		b.Store(asm.W64, area, asm.SI)
		b.Store(asm.W64, b.frame.temp(off+textAddr), asm.CX)
		b.readlink(off, func() {
			b.Lea(asm.SI, data(0).By(asm.R8, 1))
			b.LoadZX(asm.W16, asm.DX, b.frame.temp(off+textWord+4))
		})
		b.Load(asm.W64, asm.CX, b.frame.temp(off+textAddr))
		b.Load(asm.W64, asm.SI, area)
		b.LoadZX(asm.W16, asm.DX, b.frame.temp(off+textWord+4)) // the size of its room
		b.Test(asm.W64, asm.AX, asm.AX)
		b.Jcc(asm.S, gone)
		b.Op(asm.Cmp, asm.W32, asm.AX, asm.DX)
		b.JccShort(asm.B, fits)
		b.OpImm(asm.Or, asm.W32, asm.AX, textTruncated)
		b.Bind(fits)
		b.ShiftImm(asm.Shl, asm.W64, asm.AX, 32)
		b.Op(asm.Or, asm.W64, asm.AX, asm.R8)
		b.Store(asm.W64, data(slot), asm.AX)
		room := b.Mark()
		b.Op(asm.Add, asm.W64, asm.R8, asm.DX)
		b.Jmp(done)
		b.Bind(gone)
		b.StoreImm(asm.W32, data(slot), 0)
		b.StoreImm(asm.W32, data(slot+4), -1<<31)
		b.Jmp(room)
	})
}
