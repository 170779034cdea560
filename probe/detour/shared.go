package detour

import (
	"errors"
	"fmt"

	"kprobe/probe/asm"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Shared is what return probes' detours do seldom, once for a process: to find
// room for a call where the first place that was looked at has none, to find a
// call that lies elsewhere, to see through a landing. It may lie anywhere.
//
// A detour leaves in the word at its stack pointer, its link, where it goes on,
// and jumps to an address that the head of its instances has (Pool, Calls). The
// code runs in the detour's frame, of which it changes the words behind the
// link, and comes back by a jump to the link. So a thread in it has the frame
// that it has at the link, and whatever holds for a thread there holds for it.
//
// Nothing in it faults. Any number of threads, and of signal handlers that
// interrupted it, may be in it.
type Shared struct {
	Base                     uint64 // where it must lie
	Code                     []byte
	note, find, behind, take uint64
}

// What the shared code uses of a frame, from the stack pointer up.
const (
	linkWord  = 0  // where to go on
	linkTID   = 8  // u32 thread
	linkFreed = 12 // u8: rows were found that are over
	linkTried = 13 // u8: that was looked for already
	linkFrom  = 16 // the first row or stripe that was looked at
	linkSlot  = 24 // where the return address lies

	linkBehind = 8  // bytes of a frame whose detour only looks behind landings
	linkFind   = 8  // or finds
	linkNote   = 24 // or notes
	linkTake   = 32 // or takes
)

// BuildShared makes the code to lie at base.
func BuildShared(base uint64, p *Params) (*Shared, error) {
	return tight(base, p, func(c *asm.Code) (*Shared, error) {
		b := newBuilder(c, p)
		b.frame.code = c
		s := &Shared{Base: base}
		s.note = b.Here()
		b.noteRow()
		s.find = b.Here()
		b.findRow()
		s.behind = b.Here()
		b.lookBehind()
		s.take = b.Here()
		b.takeInstance()
		d, err := b.finish()
		if err != nil {
			return nil, err
		}
		if len(d.Faults) > 0 {
			return nil, errors.New("a load of the shared code may fault")
		}
		s.Code = d.Code
		return s, nil
	})
}

// Caller is where a thread that is stopped in the code, with that instruction and
// stack pointer, goes on in the detour that led there; ok is false for a thread
// that isn't in it.
func (s *Shared) Caller(ip, sp uint64, mem symbols.Memory) (at uint64, ok bool, err error) {
	if ip < s.Base || ip >= s.Base+uint64(len(s.Code)) {
		return 0, false, nil
	}
	if at, err = word(mem, sp+linkWord); err != nil {
		return 0, false, fmt.Errorf("read a detour's link: %w", err)
	}
	return at, true, nil
}

// lead emits the way to a piece of the shared code whose address is at m, which
// goes on at link. Changes DX.
func (b *builder) lead(m asm.Mem, link asm.Label) {
	b.Lea(asm.DX, asm.Rel(link))
	b.Store(asm.W64, asm.At(asm.SP, linkWord), asm.DX)
	b.Raw(0x3e) // notrack
	b.JmpMem(m)
}

// linked emits the code at a link for a piece that has found what it looked for,
// which it says by ZF, or not. missed is the probe whose ring.CounterMissed the
// piece adds one to if not.
func (b *builder) linked(link, found, none asm.Label, missed *Probe) {
	if missed != nil {
		b.Data32(uint32(ring.CountersOff + int(missed.ID)*ring.CounterSize + ring.CounterMissed))
	}
	b.Bind(link)
	b.Jcc(asm.NE, found)
	b.Jmp(none)
}

// missedBefore is how many bytes before a link its counter's offset stands.
const missedBefore = 4

func (b *builder) back() {
	b.Raw(0x3e) // notrack
	b.JmpMem(asm.At(asm.SP, linkWord))
}

// backWith goes back with ZF clear; AX, CX and the rest stay.
func (b *builder) backWith() {
	b.Test(asm.W64, asm.SP, asm.SP)
	b.back()
}

// missed counts a call without an instance and goes back with ZF set. Changes AX,
// DX, SI.
func (b *builder) missed() {
	b.area()
	b.Load(asm.W64, asm.DX, asm.At(asm.SP, linkWord))
	b.Load(asm.W32, asm.DX, asm.At(asm.DX, -missedBefore))
	b.Lock()
	b.IncMem(asm.W64, asm.Indexed(asm.SI, asm.DX, 1, 0))
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	b.back()
}

// nextRow makes CX the row behind it, the first behind the last. SI is the head.
// Changes AX.
func (b *builder) nextRow() {
	on := b.NewLabel()
	b.Load(asm.W32, asm.AX, asm.At(asm.SI, headSize))
	b.Op(asm.Add, asm.W64, asm.CX, asm.AX)
	b.OpLoad(asm.Cmp, asm.W64, asm.CX, asm.At(asm.SI, headEnd))
	b.Jcc(asm.NE, on)
	b.Lea(asm.CX, asm.At(asm.SI, callsHead))
	b.Bind(on)
}

// noteRow goes back with a row for the call DI in CX, or counts it as missed. SI
// is the head of the calls, CX the row that was looked at. Changes AX, DX, SI, R11.
//
// It looks at all rows from that one on for a free one, or for the call's own,
// which was left without an exit.
func (b *builder) noteRow() {
	again, search, next, reach, taken := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	missed := b.NewLabel()
	b.StoreImm(asm.W16, asm.At(asm.SP, linkFreed), 0) // and linkTried
	b.Store(asm.W64, asm.At(asm.SP, linkFrom), asm.CX)
	b.Bind(again)
	b.Load(asm.W64, asm.CX, asm.At(asm.SP, linkFrom))
	b.Load(asm.W32, asm.DX, asm.At(asm.SI, headCount))
	b.Bind(search)
	b.Load(asm.W64, asm.AX, asm.At(asm.CX, callSlot))
	b.Op(asm.Cmp, asm.W64, asm.AX, asm.DI)
	b.Jcc(asm.E, taken)
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.NE, next)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.CX, callSlot), asm.DI) // AX is 0
	b.Jcc(asm.NE, next)
	// It is so many rows behind the first: only this call's return needs that.
	b.Load(asm.W32, asm.R11, asm.At(asm.SI, headCount))
	b.Op(asm.Sub, asm.W32, asm.R11, asm.DX)
	b.Load(asm.W64, asm.DX, asm.At(asm.SP, linkFrom))
	b.Bind(reach)
	b.Load(asm.W32, asm.AX, asm.At(asm.DX, callReach))
	b.Op(asm.Cmp, asm.W32, asm.AX, asm.R11)
	b.Jcc(asm.AE, taken)
	b.Lock()
	b.Cmpxchg(asm.W32, asm.At(asm.DX, callReach), asm.R11)
	b.Jcc(asm.NE, reach)
	b.Bind(taken)
	b.backWith()
	b.Bind(next)
	b.nextRow()
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.NE, search)
	b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.SI, headGo), 0)
	b.Jcc(asm.NE, missed)
	b.reclaim(again, missed)
	b.Bind(missed)
	b.missed()
}

const (
	// How far below its end a thread's own stack is believed to reach. A call
	// on it that lies below the one that is just entered is over.
	mainReach   = 64 << 20
	threadReach = 1 << 20
)

// reclaim frees rows of this thread whose calls are over, and goes on at again
// if there were any, the first time; else at none. Over are those below on the
// same stack, and those whose slot the program has used anew. Slots are read only
// where nothing can fault: a load that may would need a net for SIGSEGV and
// SIGBUS, which can't leave again if the program sets a handler of its own
// meanwhile. These are the slots in the page of the one that is just entered and,
// if that is on the main stack, those above it there: the kernel maps nothing else
// within 128 MB below that stack's end (mmap_base, arch/x86/mm/mmap.c). The other
// rows are the tracer's to free. Changes AX, CX, DX, R11; SI is the head again at
// the end.
func (b *builder) reclaim(again, none asm.Label) {
	scan, below, alien, near, look, dead, on := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	tried, freed := asm.At(asm.SP, linkTried), asm.At(asm.SP, linkFreed)
	tid := asm.At(asm.SP, linkTID)
	b.OpMemImm(asm.Cmp, asm.W8, tried, 0)
	b.Jcc(asm.NE, none)
	b.StoreImm(asm.W8, tried, 1)
	b.tid()
	b.Store(asm.W32, tid, asm.AX)
	b.Lea(asm.CX, asm.At(asm.SI, callsHead))
	b.Load(asm.W32, asm.DX, asm.At(asm.SI, headCount))
	b.Bind(scan)
	b.Load(asm.W32, asm.AX, asm.At(asm.CX, callTID))
	b.OpLoad(asm.Cmp, asm.W32, asm.AX, tid)
	b.Jcc(asm.NE, on)
	b.Load(asm.W64, asm.R11, asm.At(asm.CX, callSlot))
	b.Op(asm.Cmp, asm.W64, asm.R11, asm.DI)
	b.Jcc(asm.B, below)
	if b.p.StackEnd != 0 {
		// From the one entered up to the stack's end?
		b.MovImm(asm.AX, b.p.StackEnd-8)
		b.Op(asm.Cmp, asm.W64, asm.R11, asm.AX)
		b.Jcc(asm.A, near)
		b.Op(asm.Sub, asm.W64, asm.AX, asm.DI)
		b.OpImm(asm.Cmp, asm.W64, asm.AX, mainReach)
		b.Jcc(asm.B, look)
	}
	b.Bind(near) // all its bytes in the page of the slot at DI?
	for _, last := range [...]int32{7, 0} {
		b.Lea(asm.AX, asm.At(asm.R11, last))
		b.Op(asm.Xor, asm.W64, asm.AX, asm.DI)
		b.ShiftImm(asm.Shr, asm.W64, asm.AX, 12)
		b.Jcc(asm.NE, on)
	}
	b.Bind(look)
	b.Load(asm.W64, asm.AX, asm.At(asm.R11, 0))
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.CX, callReturn))
	b.Jcc(asm.E, on)
	b.Bind(dead)
	b.StoreImm(asm.W32, asm.At(asm.CX, callTID), 0)
	b.StoreImm(asm.W64, asm.At(asm.CX, callSlot), 0)
	b.StoreImm(asm.W8, freed, 1)
	b.Bind(on)
	b.Load(asm.W32, asm.AX, asm.At(asm.SI, headSize))
	b.Op(asm.Add, asm.W64, asm.CX, asm.AX)
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.NE, scan)
	b.OpMemImm(asm.Cmp, asm.W8, freed, 0)
	b.Jcc(asm.NE, again)
	b.Jmp(none)

	// Both within reach of the end of the same stack?
	b.Bind(below)
	within := func(reach int32, no asm.Label) {
		b.Op(asm.Sub, asm.W64, asm.AX, asm.DI)
		b.OpImm(asm.Cmp, asm.W64, asm.AX, reach)
		b.Jcc(asm.AE, no)
		b.Op(asm.Add, asm.W64, asm.AX, asm.DI)
		b.Op(asm.Sub, asm.W64, asm.AX, asm.R11)
		b.OpImm(asm.Cmp, asm.W64, asm.AX, reach)
		b.Jcc(asm.B, dead)
	}
	if b.p.StackEnd != 0 {
		b.MovImm(asm.AX, b.p.StackEnd)
		within(mainReach, alien)
	}
	b.Bind(alien)
	if b.p.TID.Seg == asm.FS && len(b.p.TID.Path) == 0 {
		// The first word of a control block is its own address (glibc's
		// tcbhead_t, musl's struct pthread), and a thread's lies where its
		// stack ends.
		b.Load(asm.W64, asm.AX, asm.SegAbs(asm.FS, 0))
		within(threadReach, near)
	}
	b.Jmp(near)
}

// findRow goes back with the row of the call DI in CX, or with ZF set. SI is the
// head of the calls, CX the row that was looked at. Changes AX, DX.
func (b *builder) findRow() {
	none := b.NewLabel()
	b.Load(asm.W32, asm.DX, asm.At(asm.CX, callReach))
	b.Test(asm.W32, asm.DX, asm.DX)
	b.Jcc(asm.E, none)
	search, on := b.Mark(), b.NewLabel()
	b.nextRow()
	b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, callSlot))
	b.Jcc(asm.NE, on)
	b.backWith()
	b.Bind(on)
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.NE, search)
	b.Bind(none) // ZF is set
	b.back()
}

// lookBehind makes AX, an address returned to whose last bits are a landing's,
// the one behind it if it is a landing: that of a function which jumped to this
// one. Changes DX.
func (b *builder) lookBehind() {
	no := b.NewLabel()
	b.ifLanding(no)
	// Instances have addresses of 48 bits, at the end of their stubs.
	b.Load(asm.W64, asm.DX, asm.At(asm.AX, stubSize-landingOff-8))
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, 16)
	b.Load(asm.W64, asm.AX, asm.At(asm.DX, instReal))
	b.Bind(no)
	b.back()
}

// ifLanding goes on behind itself if AX, whose last bits are a landing's, is the
// address of one, of whatever probe, else at no. Changes DX.
//
// The bytes that are looked at are in the page of the call before them.
func (b *builder) ifLanding(no asm.Label) {
	b.Lea(asm.DX, asm.At(asm.AX, -lowest))
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, 47)
	b.Jcc(asm.NE, no)
	// lea rsp, [rsp-8] with its push and jump, as no compiler writes it.
	b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.AX, 0), 0x24648d48)
	b.Jcc(asm.NE, no)
	b.LoadZX(asm.W16, asm.DX, asm.At(asm.AX, 4))
	b.OpImm(asm.Cmp, asm.W32, asm.DX, 0x68f8)
	b.Jcc(asm.NE, no)
	b.OpMemImm(asm.Cmp, asm.W8, asm.At(asm.AX, 15), -0x34) // int3
	b.Jcc(asm.NE, no)
}

// aboutLanding goes on at look if the last bits of the address AX, of one that is
// returned to, are those of a landing: most others need no look at what lies
// there. Changes DX.
func (b *builder) aboutLanding(look asm.Label) {
	b.Lea(asm.DX, asm.At(asm.AX, -landingOff))
	b.TestImm(asm.W8, asm.DX, stubSize-1)
	b.Jcc(asm.E, look)
}

// takeInstance goes back with an instance in CX, and in DX its number, from 1,
// shifted to the distance from the one before the first; or counts the call as
// missed. R11 is the pool, SI the stripe's head that had none, DI the slot.
// Changes AX, DI, SI, R11.
//
// It looks at the other stripes. Where they have none either, it takes an
// instance whose call was left by longjmp, an exception or the like: the thread's
// own, with the slot that the program has now used anew. An instance that another
// thread is just taking has that thread's number, or none, before its slot is
// told.
func (b *builder) takeInstance() {
	stripe, retry, none, scan, next, missed, taken := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	slot, from := asm.At(asm.SP, linkSlot), asm.At(asm.SP, linkFrom)
	b.Store(asm.W64, slot, asm.DI)
	b.Op(asm.Sub, asm.W64, asm.SI, asm.R11)
	b.Store(asm.W64, from, asm.SI)
	b.Bind(stripe)
	b.OpImm(asm.Add, asm.W32, asm.SI, stripeSize)
	b.OpLoad(asm.And, asm.W32, asm.SI, asm.At(asm.R11, poolMask))
	b.OpLoad(asm.Cmp, asm.W64, asm.SI, from)
	b.Jcc(asm.E, none) // all round
	b.Load(asm.W64, asm.AX, asm.Indexed(asm.R11, asm.SI, 1, 0))
	b.Bind(retry)
	b.Mov(asm.W64, asm.DX, asm.AX)
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, 32)
	b.Jcc(asm.E, stripe)
	b.Load(asm.W32, asm.CX, asm.At(asm.R11, poolShift))
	b.ShiftCL(asm.Shl, asm.W64, asm.DX)
	b.Load(asm.W64, asm.CX, asm.At(asm.R11, poolBefore))
	b.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	b.Load(asm.W32, asm.DI, asm.At(asm.CX, instNext))
	b.ShiftImm(asm.Shl, asm.W64, asm.DI, 32)
	b.Lea(asm.CX, asm.At(asm.AX, 1))
	b.Mov(asm.W32, asm.CX, asm.CX) // the changes wrap at 32 bits
	b.Op(asm.Or, asm.W64, asm.DI, asm.CX)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.Indexed(asm.R11, asm.SI, 1, 0), asm.DI)
	b.Jcc(asm.NE, retry)
	b.Load(asm.W64, asm.CX, asm.At(asm.R11, poolBefore))
	b.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	b.Bind(taken)
	b.backWith()

	b.Bind(none)
	b.Load(asm.W64, asm.DI, slot)
	b.Load(asm.W64, asm.AX, asm.At(asm.DI, 0))
	look, single := b.NewLabel(), b.NewLabel()
	b.aboutLanding(look)
	b.Jmp(single)
	b.Bind(look)
	b.ifLanding(single)
	b.Jmp(missed) // functions that jump to each other are in the calls of their instances
	b.Bind(single)
	b.Mov(asm.W64, asm.SI, asm.R11) // which a system call changes
	b.tid()
	b.Load(asm.W32, asm.R11, asm.At(asm.SI, poolSize))
	b.Mov(asm.W32, asm.DX, asm.R11)
	b.Load(asm.W64, asm.CX, asm.At(asm.SI, poolBefore))
	b.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	b.Bind(scan)
	b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, instSlot))
	b.Jcc(asm.NE, next)
	b.OpLoad(asm.Cmp, asm.W32, asm.AX, asm.At(asm.CX, instTID))
	b.Jcc(asm.E, taken)
	b.Bind(next)
	b.Op(asm.Add, asm.W64, asm.CX, asm.R11)
	b.Op(asm.Add, asm.W32, asm.DX, asm.R11)
	b.OpLoad(asm.Cmp, asm.W32, asm.DX, asm.At(asm.SI, poolEnd))
	b.Jcc(asm.NE, scan)
	b.Bind(missed)
	b.missed()
}
