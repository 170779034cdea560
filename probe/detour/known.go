package detour

import (
	"encoding/binary"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// Memory that is known to be there
//
// A question costs a system call (reads.go). It isn't asked again for a page of which the kernel
// has said once that it can be read, while nothing can have taken that page away:
//
//	pages   the last page for each value of nine bits of its number, of those that could be read
//	ended   a byte for each MiB, modulo 4 GiB: something there was unmapped or protected
//	ranges  the only memory whose pages are noted: private memory without a file, and the
//	        program's own file. Other files can be truncated by anybody
//
// A jump of kprobe's own before each system call that can end a mapping marks what it ends first,
// for good. So a page whose number is noted and whose MiB isn't marked is there. What remains is
// what remains of a question: the nanoseconds between it and the load.
//
// Code that is mapped later may make such calls where no jump is. Whoever maps some ends all this
// (KnownOver). So do calls that change what may be read in other ways: protection keys, faults that
// the program itself answers (userfaultfd).
//
// Whoever laid the jumps fills the table while all threads are stopped, none of them between such a
// jump and its system call.

// The layout of the memory at Params.Known, which must be at a page's start.
const (
	knownPages  = 0      // u64 page numbers
	knownEnded  = 0x1000 // bytes
	knownState  = 0x2000 // u8, see KnownOn
	knownBreak  = 0x2008 // u64: the end of the heap, the highest that there was
	knownCount  = 0x2010 // u32: the number of ranges
	knownRanges = 0x2018 // start and end of each
	// KnownSize is the size of it all.
	KnownSize = 0x3000

	// KnownRanges is how many ranges there can be.
	KnownRanges = 96

	pageBits   = 9
	endedShift = 20
	endedBits  = 12
)

// The states of known memory. 0 is that nobody marks what ends.
const (
	KnownOn   = 1
	KnownOver = 2
)

// KnownState is where the state lies, from Params.Known.
const KnownState = knownState

// KnownRange is memory whose pages may be noted.
type KnownRange struct{ Start, End uint64 }

// KnownTable returns what is to be written at Params.Known to begin with, for at most KnownRanges
// ranges: no page, and no mark. heap is the end of the heap, 0 if there is none.
func KnownTable(ranges []KnownRange, heap uint64) []byte {
	out := make([]byte, knownRanges, KnownSize)
	out[knownState] = KnownOn
	binary.LittleEndian.PutUint64(out[knownBreak:], heap)
	binary.LittleEndian.PutUint32(out[knownCount:], uint32(len(ranges)))
	for _, r := range ranges {
		out = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(out, r.Start), r.End)
	}
	return out
}

// recall continues at next if the page at SI is known to be there. Changes AX, CX, DX.
func (b *builder) recall(next asm.Label) {
	if b.p.Known == 0 {
		return
	}
	ask := b.NewLabel()
	b.MovAbs(asm.CX, b.p.Known)
	b.pageSlot()
	b.OpStore(asm.Cmp, asm.W64, asm.Indexed(asm.CX, asm.AX, 8, knownPages), asm.DX)
	b.JccShort(asm.NE, ask)
	b.notEnded(ask)
	b.Jcc(asm.E, next)
	b.Bind(ask)
}

// pageSlot sets DX to the number of the page at SI, and AX to its place among the pages.
func (b *builder) pageSlot() {
	b.Mov(asm.W64, asm.DX, asm.SI)
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, pageShift)
	b.Mov(asm.W32, asm.AX, asm.DX)
	b.OpImm(asm.And, asm.W32, asm.AX, 1<<pageBits-1)
}

// notEnded continues at ended if the memory around SI is marked. Else it sets ZF if what is known counts. CX is
// Params.Known. Changes AX.
func (b *builder) notEnded(ended asm.Label) {
	b.Mov(asm.W32, asm.AX, asm.SI)
	b.ShiftImm(asm.Shr, asm.W32, asm.AX, endedShift)
	b.OpMemImm(asm.Cmp, asm.W8, asm.Indexed(asm.CX, asm.AX, 1, knownEnded), 0)
	b.Jcc(asm.NE, ended)
	b.OpMemImm(asm.Cmp, asm.W8, asm.At(asm.CX, knownState), KnownOn)
}

// remember notes the page at SI, which can be read. Changes AX, CX, DX, DI, R10.
func (b *builder) remember() {
	if b.p.Known == 0 {
		return
	}
	done, more, skip, found := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.MovAbs(asm.CX, b.p.Known)
	b.notEnded(done)
	b.Jcc(asm.NE, done)
	b.Load(asm.W32, asm.R10, asm.At(asm.CX, knownCount))
	b.Lea(asm.DI, asm.At(asm.CX, knownRanges))
	b.Bind(more)
	b.OpImm(asm.Sub, asm.W32, asm.R10, 1)
	b.Jcc(asm.S, done)
	b.OpLoad(asm.Cmp, asm.W64, asm.SI, asm.At(asm.DI, 0))
	b.JccShort(asm.B, skip)
	b.OpLoad(asm.Cmp, asm.W64, asm.SI, asm.At(asm.DI, 8))
	b.JccShort(asm.B, found)
	b.Bind(skip)
	b.OpImm(asm.Add, asm.W64, asm.DI, 16)
	b.Jmp(more)
	b.Bind(found)
	b.pageSlot()
	b.Store(asm.W64, asm.Indexed(asm.CX, asm.AX, 8, knownPages), asm.DX)
	b.Bind(done)
}

// Numbers of the system calls after which memory may not be what it was.
const (
	sysMmap         = 9
	sysMprotect     = 10
	sysMunmap       = 11
	sysBrk          = 12
	sysMremap       = 25
	sysMadvise      = 28
	sysShmat        = 30
	sysPersonality  = 135
	sysUserfaultfd  = 323
	sysPkeyMprotect = 329
	sysPkeyAlloc    = 330
	sysProcMadvise  = 440

	protRead   = 1
	protExec   = 4
	map32Bit   = 0x40
	remapFixed = 2
	advRemove  = 9
	advPoison  = 100 // MADV_HWPOISON, MADV_SOFT_OFFLINE, MADV_GUARD_INSTALL
	advGuard   = 102
)

// unmappers say for each system call that may end a mapping, by ascending numbers, what is done before it.
var unmappers = []struct {
	number int32
	emit   func(b *builder, over asm.Label)
}{
	{sysMmap, (*builder).mapsOver}, {sysMprotect, (*builder).protects}, {sysMunmap, func(b *builder, _ asm.Label) { b.marks(fetch.DI, fetch.SI) }},
	{sysBrk, (*builder).movesBreak}, {sysMremap, (*builder).remaps}, {sysMadvise, (*builder).advises}, {sysShmat, (*builder).attaches},
	{sysPersonality, (*builder).endsAll}, {sysUserfaultfd, (*builder).endsAll}, {sysPkeyMprotect, (*builder).endsAll},
	{sysPkeyAlloc, (*builder).endsAll}, {sysProcMadvise, (*builder).endsAll},
}

// Unmapping lists the numbers of the system calls before which something is done (Birth.Unmaps), in ascending
// order. The files' places are found by the numbers of survey.Unmapping.
func Unmapping() (numbers []uint32) {
	for _, u := range unmappers {
		numbers = append(numbers, uint32(u.number))
	}
	return numbers
}

// unmaps emits the code before a system call that may end a mapping. Changes AX, CX and DX.
func (b *builder) unmaps(x *Birth) {
	over := b.NewLabel()
	if x.Number == 0 {
		b.numberAt(x, over)
		b.OpImm(asm.Cmp, asm.W32, asm.AX, sysMmap)
		b.Jcc(asm.B, over)
	}
	for _, p := range unmappers {
		switch x.Number {
		case 0:
			at := b.NewLabel()
			b.OpImm(asm.Cmp, asm.W32, asm.AX, p.number)
			b.Jcc(asm.E, at)
			b.later(func() {
				b.Bind(at)
				p.emit(b, over)
				b.Jmp(over)
			})
		case int(p.number):
			p.emit(b, over)
		}
	}
	b.Bind(over)
}

func (b *builder) endsAll(asm.Label) {
	b.MovAbs(asm.CX, b.p.Known)
	b.StoreImm(asm.W8, asm.At(asm.CX, knownState), KnownOver)
}

// marks marks the memory whose start and size are in two of the program's registers.
func (b *builder) marks(start, size fetch.Reg) {
	b.register(size)
	b.Mov(asm.W64, asm.CX, asm.AX)
	b.register(start)
	b.marksAt()
}

// marksAt is marks for the CX bytes at AX.
func (b *builder) marksAt() {
	fits, loop, same, none := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.Mov(asm.W32, asm.DX, asm.AX)
	b.OpImm(asm.And, asm.W32, asm.DX, 1<<endedShift-1)
	b.Lea(asm.CX, asm.Indexed(asm.CX, asm.DX, 1, 1<<endedShift-1)) // sizes for which this wraps are refused
	b.ShiftImm(asm.Shr, asm.W64, asm.CX, endedShift)
	b.Jcc(asm.E, none)
	b.OpImm(asm.Cmp, asm.W64, asm.CX, 1<<endedBits)
	b.JccShort(asm.BE, fits)
	b.MovImm(asm.CX, 1<<endedBits)
	b.Bind(fits)
	b.ShiftImm(asm.Shr, asm.W32, asm.AX, endedShift)
	b.MovAbs(asm.DX, b.p.Known+knownEnded)
	b.Op(asm.Add, asm.W64, asm.DX, asm.AX)
	b.Bind(loop)
	b.StoreImm(asm.W8, asm.At(asm.DX, 0), 1)
	b.OpImm(asm.Add, asm.W64, asm.DX, 1)
	b.TestImm(asm.W32, asm.DX, 1<<endedBits-1)
	b.JccShort(asm.NE, same)
	b.OpImm(asm.Sub, asm.W64, asm.DX, 1<<endedBits)
	b.Bind(same)
	b.OpImm(asm.Sub, asm.W32, asm.CX, 1)
	b.Jcc(asm.NE, loop)
	b.Bind(none)
}

// mapsOver is for mmap: with an address it may replace what is there, or put a file where nothing was.
func (b *builder) mapsOver(over asm.Label) {
	all, some := b.NewLabel(), b.NewLabel()
	b.register(fetch.DX)
	b.TestImm(asm.W32, asm.AX, protExec)
	b.Jcc(asm.NE, all)
	b.register(fetch.R10)
	b.TestImm(asm.W32, asm.AX, map32Bit)
	b.Jcc(asm.E, some)
	b.Bind(all)
	b.endsAll(over)
	b.Jmp(over)
	b.Bind(some)
	b.register(fetch.DI)
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.E, over)
	b.marks(fetch.DI, fetch.SI)
}

// protects is for mprotect.
func (b *builder) protects(over asm.Label) {
	kept := b.NewLabel()
	b.register(fetch.DX)
	b.TestImm(asm.W32, asm.AX, protExec)
	b.Jcc(asm.E, kept)
	b.endsAll(over)
	b.Bind(kept)
	b.register(fetch.DX)
	b.TestImm(asm.W32, asm.AX, protRead)
	b.Jcc(asm.NE, over)
	b.marks(fetch.DI, fetch.SI)
}

// movesBreak is for brk. What is above the new end is gone; the old one is known from earlier calls.
func (b *builder) movesBreak(over asm.Label) {
	again, down := b.NewLabel(), b.NewLabel()
	b.register(fetch.DI)
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.E, over)
	b.Mov(asm.W64, asm.DX, asm.AX)
	b.MovAbs(asm.CX, b.p.Known+knownBreak)
	b.Load(asm.W64, asm.AX, asm.At(asm.CX, 0))
	b.Bind(again)
	b.Op(asm.Cmp, asm.W64, asm.DX, asm.AX)
	b.Jcc(asm.BE, down)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.CX, 0), asm.DX)
	b.Jcc(asm.NE, again)
	b.Jmp(over)
	b.Bind(down)
	b.Mov(asm.W64, asm.CX, asm.AX)
	b.Op(asm.Sub, asm.W64, asm.CX, asm.DX)
	b.Mov(asm.W64, asm.AX, asm.DX)
	b.marksAt()
}

// remaps is for mremap: the old place, and a new one that the program has chosen.
func (b *builder) remaps(over asm.Label) {
	b.marks(fetch.DI, fetch.SI)
	b.register(fetch.R10)
	b.TestImm(asm.W32, asm.AX, remapFixed)
	b.Jcc(asm.E, over)
	b.marks(fetch.R8, fetch.DX)
}

// advises is for madvise. Most of what is advised leaves memory there.
func (b *builder) advises(over asm.Label) {
	gone := b.NewLabel()
	b.register(fetch.DX)
	b.OpImm(asm.Cmp, asm.W32, asm.AX, advRemove)
	b.Jcc(asm.E, gone)
	b.OpImm(asm.Sub, asm.W32, asm.AX, advPoison)
	b.OpImm(asm.Cmp, asm.W32, asm.AX, advGuard-advPoison)
	b.Jcc(asm.A, over)
	b.Bind(gone)
	b.marks(fetch.DI, fetch.SI)
}

// attaches is for shmat: at an address it may replace what is there (SHM_REMAP).
func (b *builder) attaches(over asm.Label) {
	b.register(fetch.SI)
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.E, over)
	b.endsAll(over)
}
