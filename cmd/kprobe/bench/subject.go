package bench

import (
	"fmt"

	"kprobe/probe/asm"
)

// Where the subject is linked. It isn't position-independent, so that the
// detours of the floor may hold addresses.
const (
	textAt = 0x40000000
	dataAt = 0x50000000
	page   = 4096

	maxThreads = 64
	stackSize  = 64 << 10
	tcbSize    = page
	// tidAt is where glibc's thread control blocks hold the thread's number
	// (nptl/descr.h, struct pthread): detours look for it there.
	tidAt = 0x2d0
	// selfAt is where they hold their own address, besides their first word
	// (tcbhead_t).
	selfAt = 0x10
)

// System calls of x86-64 (arch/x86/entry/syscalls/syscall_64.tbl).
const (
	sysRead         = 0
	sysWrite        = 1
	sysClone        = 56
	sysArchPrctl    = 158
	sysGettid       = 186
	sysClockGettime = 228
	sysExitGroup    = 231

	clockMonotonic = 1
	archSetFS      = 0x1002
	// threadFlags are CLONE_VM, FS, FILES, SIGHAND, THREAD and SYSVSEM.
	threadFlags = 0x50f00
	// ownTLS are CLONE_SETTLS and PARENT_SETTID, as C libraries make threads.
	ownTLS = 0x180000
)

// A request is two words: a function's address and how often to call it; or 0
// and the number of a thread to start. The answer to the first is two times,
// four words, of CLOCK_MONOTONIC.
const (
	requestSize = 16
	answerSize  = 32
	// firstPipe is the descriptor from which the first thread reads; it writes
	// to the next, and the second thread reads from the one behind that.
	firstPipe = 3
)

// symbol is a function of the subject.
type symbol struct {
	name string
	at   uint64
	size uint64
	bare bool // it has no debug information
}

// subject is the program in memory.
type subject struct {
	code  []byte
	entry uint64
	funcs []symbol
	data  *dataLayout
	// linked has the loader start it, which makes the thread control block.
	linked bool
}

// writer emits the subject.
type writer struct {
	*asm.Code
	s       *subject
	data    *dataLayout
	pending []pendingSequence
}

// newSubject writes the program for CPUs numbered below cpus, with so many
// functions besides, many_00000 and on, which nobody calls, and up to 1,000 of
// several returns, forked_00000 and on. A linked one has one thread only.
func newSubject(cpus, many int, linked bool) (*subject, error) {
	w := &writer{Code: asm.New(textAt), s: &subject{linked: linked}, data: layData(cpus)}
	w.s.data = w.data
	text := w.Mark()
	w.Raw([]byte("hello, world\x00")...)
	w.fn("work", w.work)
	w.fn("pushed", w.pushed)
	// What is never probed, to be measured beside what is.
	w.fn("bare_work", w.work)
	w.fn("bare_pushed", w.pushed)
	w.exported()
	w.tasks()
	for f := floorCount; f < floorKinds; f++ {
		if f.stops() {
			w.trapped(f)
		} else {
			w.floor(f)
		}
	}
	for i := range min(many, thousand) {
		w.fn(fmt.Sprintf("forked_%05d", i), w.forked)
		w.s.funcs[len(w.s.funcs)-1].bare = true
	}
	for i := range many {
		w.fn(fmt.Sprintf("many_%05d", i), w.work)
		w.s.funcs[len(w.s.funcs)-1].bare = true
	}
	w.fn("_start", func() {
		w.s.entry = w.Here()
		w.main(text)
	})
	var err error
	w.s.code, err = w.Bytes()
	return w.s, err
}

func (w *writer) fn(name string, body func()) {
	w.Align(64, 0xcc)
	at := w.Here()
	body()
	w.s.funcs = append(w.s.funcs, symbol{name: name, at: at, size: w.Here() - at})
}

// work is the probed function: its first instruction has 7 bytes.
func (w *writer) work() {
	w.work0()
	w.Op(asm.Xor, asm.W64, asm.AX, asm.SI)
	w.Ret()
}

// pushed is work behind a usual prologue.
func (w *writer) pushed() {
	w.Push(asm.BP)
	w.Mov(asm.W64, asm.BP, asm.SP)
	w.work0()
	w.Op(asm.Xor, asm.W64, asm.AX, asm.SI)
	w.Pop(asm.BP)
	w.Ret()
}

// forked has so many returns that it isn't probed at each.
func (w *writer) forked() {
	for i := range 8 {
		on := w.NewLabel()
		w.OpImm(asm.Cmp, asm.W64, asm.DI, int32(i))
		w.Jcc(asm.NE, on)
		w.work0()
		w.Ret()
		w.Bind(on)
	}
	w.work0()
	w.Ret()
}

func (w *writer) work0() { w.Lea(asm.AX, asm.At(asm.DI, 0x12345)) }

// main serves requests, unless it was given an argument. R15 is the descriptor to read from.
func (w *writer) main(text asm.Label) {
	system := func(n int) { w.MovImm(asm.AX, uint64(n)); w.Syscall() }
	again, done, spawn := w.NewLabel(), w.NewLabel(), w.NewLabel()
	w.OpMemImm(asm.Cmp, asm.W64, asm.At(asm.SP, 0), 1)
	w.Jcc(asm.NE, done) // with an argument there is nothing to do
	w.MovImm(asm.R15, firstPipe)
	thread := w.Mark()
	if !w.s.linked {
		w.control(system)
	}
	w.OpImm(asm.Sub, asm.W64, asm.SP, 256)

	w.Bind(again)
	w.Mov(asm.W32, asm.DI, asm.R15)
	w.Mov(asm.W64, asm.SI, asm.SP)
	w.MovImm(asm.DX, requestSize)
	system(sysRead)
	w.OpImm(asm.Cmp, asm.W64, asm.AX, requestSize)
	w.Jcc(asm.NE, done)
	w.Load(asm.W64, asm.R12, asm.At(asm.SP, 0))
	w.Load(asm.W64, asm.R13, asm.At(asm.SP, 8))
	w.Test(asm.W64, asm.R12, asm.R12)
	w.Jcc(asm.E, spawn)
	w.clock(0)
	w.Lea(asm.BP, asm.Rel(text))
	w.Align(64, 0x90)
	loop := w.Mark()
	w.Mov(asm.W64, asm.DI, asm.R13)
	w.Mov(asm.W64, asm.SI, asm.BP)
	w.CallReg(asm.R12)
	w.Op(asm.Add, asm.W64, asm.R14, asm.AX)
	w.Dec(asm.W64, asm.R13)
	w.Jcc(asm.NE, loop)
	w.clock(16)
	w.Lea(asm.DI, asm.At(asm.R15, 1))
	w.Mov(asm.W64, asm.SI, asm.SP)
	w.MovImm(asm.DX, answerSize)
	system(sysWrite)
	w.Jmp(again)

	w.Bind(spawn)
	flags := uint64(threadFlags)
	w.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
	w.Op(asm.Xor, asm.W32, asm.R8, asm.R8)
	if !w.s.linked {
		flags |= ownTLS
		w.Mov(asm.W64, asm.R8, asm.R13)
		w.ShiftImm(asm.Shl, asm.W64, asm.R8, 12)
		w.Op(asm.Add, asm.W64, asm.R8, w.address(asm.AX, w.data.tcbs))
		w.Store(asm.W64, asm.At(asm.R8, 0), asm.R8)
		w.Lea(asm.DX, asm.At(asm.R8, tidAt))
	}
	w.MovImm(asm.DI, flags)
	w.Mov(asm.W64, asm.SI, asm.R13)
	w.ShiftImm(asm.Shl, asm.W64, asm.SI, 16)
	w.Op(asm.Add, asm.W64, asm.SI, w.address(asm.AX, w.data.stacks))
	w.Op(asm.Xor, asm.W32, asm.R10, asm.R10)
	system(sysClone)
	w.Test(asm.W64, asm.AX, asm.AX)
	w.Jcc(asm.NE, again)
	w.Lea(asm.R15, asm.Indexed(asm.R13, asm.R13, 1, firstPipe))
	w.Jmp(thread)

	w.Bind(done)
	w.Op(asm.Xor, asm.W32, asm.DI, asm.DI)
	system(sysExitGroup)
}

// control makes the thread control block: page number R15/2 - 1.
func (w *writer) control(system func(int)) {
	w.Lea(asm.SI, asm.At(asm.R15, -firstPipe))
	w.ShiftImm(asm.Shl, asm.W64, asm.SI, 11)
	w.Op(asm.Add, asm.W64, asm.SI, w.address(asm.AX, w.data.tcbs))
	w.MovImm(asm.DI, archSetFS)
	system(sysArchPrctl)
	w.Store(asm.W64, asm.At(asm.SI, 0), asm.SI)
	w.Store(asm.W64, asm.At(asm.SI, selfAt), asm.SI)
	system(sysGettid)
	w.Store(asm.W32, asm.SegAbs(asm.FS, tidAt), asm.AX)
	w.register(system)
}

// address loads an address and returns the register.
func (w *writer) address(r asm.Reg, at uint64) asm.Reg {
	w.MovImm(r, at)
	return r
}

// clock stores the time at SP+off.
func (w *writer) clock(off int32) {
	w.MovImm(asm.DI, clockMonotonic)
	w.Lea(asm.SI, asm.At(asm.SP, off))
	w.MovImm(asm.AX, sysClockGettime)
	w.Syscall()
}
