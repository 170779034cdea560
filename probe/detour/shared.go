package detour

import (
	"errors"
	"fmt"

	"kprobe/probe/asm"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Shared is code that the detours of a process have in common: it finds the ends of texts and
// copies them, notes the calls of return probes, and finds a call that isn't in the first row
// searched. It may lie anywhere.
//
// A detour stores the address at which it continues in the word at its stack pointer, its link.
// It then jumps to an address with which it was built, or which the head of its instances has
// (Pool, Calls). The code runs in the detour's frame. It changes the words above the link, and
// returns by a jump to the link. So the frame of a thread in it is the frame that the thread
// has at the link, and whatever holds for a thread there holds for it.
//
// Only loads of texts fault in it. Any number of threads, and of signal handlers that
// interrupted it, may be in it.
type Shared struct {
	Base                     uint64 // where it must lie
	Code                     []byte
	Faults                   []Fault
	Asks                     []Ask
	note, noteGo, find, take uint64
	takeKept                 uint64
	noteCommon, noteJump     uint64
	scan, name, copy         uint64
	read, readEnd            uint64
	reserve                  uint64
	endCall, endInstance     uint64
}

var errNoShared = errors.New("a text needs shared code")

// The words of a frame that the shared code uses, from the stack pointer up.
const (
	linkWord  = 0  // the address at which the detour continues
	linkTID   = 8  // u32 thread number
	linkFreed = 12 // u8: rows of calls that are over were found
	linkTried = 13 // u8: such rows were searched already
	linkFrom  = 16 // the first row or stripe of the search
	linkSlot  = 24 // address of the slot

	// The number of bytes that a frame needs for them:
	linkText = 8  // if its detour has texts
	linkFind = 8  // if it finds calls
	linkNote = 24 // if it notes calls
	linkTake = 32 // if it takes instances
)

// hotAlign is the alignment of pieces that hits go through.
const hotAlign = 32

// BuildShared builds the code for address base.
func BuildShared(base uint64, p *Params) (*Shared, error) {
	return tight(base, p, func(c *asm.Code) (*Shared, error) {
		b := newBuilder(c, p)
		b.shared = true
		b.frame.code = c
		s := &Shared{Base: base}
		hot := func() uint64 {
			b.Align(hotAlign, 0xcc)
			return b.Here()
		}
		if b.reading = b.NewLabel(); p.Careful {
			s.read = hot()
			b.Bind(b.reading)
			b.readable()
			s.readEnd = b.Here()
		}
		s.scan = hot()
		b.scanText()
		s.name = hot()
		b.askName(s.scan)
		s.copy = hot()
		b.copyOut()
		s.note = hot()
		b.note(false)
		s.noteCommon = hot()
		b.noteCommon(false)
		s.noteJump = hot()
		b.noteCommon(true)
		s.take = hot()
		take := b.Mark()
		b.take()
		if s.takeKept = s.take; p.countsInSequences() {
			s.takeKept = hot()
			b.takeKept(take)
		}
		s.reserve = hot()
		b.reserveRoom()
		s.endCall = hot()
		b.endRecord()
		b.freeCall()
		b.back()
		s.endInstance = hot()
		b.endRecord()
		b.Mov(asm.W64, asm.CX, asm.DI)
		b.Mov(asm.W32, asm.DX, asm.R8)
		b.freeInstance(0)
		b.back()
		s.noteGo = b.Here()
		b.note(true)
		s.find = b.Here()
		b.findRow()
		d, err := b.finish()
		if err != nil {
			return nil, err
		}
		s.Code, s.Faults, s.Asks = d.Code, d.Faults(), d.Asks()
		return s, nil
	})
}

// Caller returns where a thread that is stopped in the code, with that instruction and stack
// pointer, continues in the detour that led there. ok is false for a thread that isn't in it.
func (s *Shared) Caller(ip, sp uint64, mem symbols.Memory) (at uint64, ok bool, err error) {
	if ip < s.Base || ip >= s.Base+uint64(len(s.Code)) {
		return 0, false, nil
	}
	link := uint64(linkWord)
	if ip >= s.read && ip < s.readEnd {
		link = readLink
	}
	if at, err = word(mem, sp+link); err != nil {
		return 0, false, fmt.Errorf("read a detour's link: %w", err)
	}
	if link == readLink {
		// A text's question is asked in the shared code.
		if from, in, err := s.Caller(at, sp, mem); (in || err != nil) && (at < s.read || at >= s.readEnd) {
			return from, in, err
		}
	}
	return at, true, nil
}

// lead emits a jump to a piece of the shared code whose address is at m. The piece returns to link, which follows
// the jump. If the piece finds nothing, it sets ZF and increments ring.CounterMissed of the probe missed.
// Changes DX.
func (b *builder) lead(m asm.Mem, link asm.Label, missed *Probe) {
	b.Lea(asm.DX, asm.Rel(link))
	b.Store(asm.W64, asm.At(asm.SP, linkWord), asm.DX)
	b.Raw(0x3e) // notrack
	b.JmpMem(m)
	if missed != nil {
		if b.owns {
			b.Data32(missed.ID | b.ownerBits)
		}
		b.Data32(uint32(ring.CountersOff + int(missed.ID)*ring.CounterSize + ring.CounterMissed))
	}
	b.Bind(link)
}

// missedBefore is the distance, in bytes, of the counter's offset before a link. ownerIs is that of the probe's
// number, if calls are noted in a common table.
const (
	missedBefore = 4
	ownerIs      = 8
)

func (b *builder) back() {
	if b.table != nil {
		b.Jmp(b.pieceEnd)
		return
	}
	b.Raw(0x3e) // notrack
	b.JmpMem(asm.At(asm.SP, linkWord))
}

// backWith returns with ZF clear. All registers stay.
func (b *builder) backWith() {
	if b.table == nil {
		b.Test(asm.W64, asm.SP, asm.SP)
	}
	b.back()
}

// missed counts a missed call and returns with ZF set. Changes AX, DX, SI.
func (b *builder) missed() {
	b.area()
	counter := int32(0)
	if b.table != nil {
		b.owned()
		b.OpImm(asm.And, asm.W32, asm.R11, ownerID)
		b.ImulImm(asm.W32, asm.DX, asm.R11, ring.CounterSize)
		counter = int32(counterOff(0, ring.CounterMissed))
	} else {
		b.Load(asm.W64, asm.DX, asm.At(asm.SP, linkWord))
		b.Load(asm.W32, asm.DX, asm.At(asm.DX, -missedBefore))
	}
	b.Lock()
	b.IncMem(asm.W64, asm.Indexed(asm.SI, asm.DX, 1, counter))
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	b.back()
}

// behind replaces AX, a return address. If it is a return trampoline's, of a function that has jumped to this
// one, AX becomes the return address that the trampoline's instance holds. Changes DX.
func (b *builder) behind() {
	look, done := b.NewLabel(), b.NewLabel()
	b.aboutTrampoline(look)
	b.Bind(done)
	b.later(func() {
		b.Bind(look)
		b.ifTrampoline(done)
		// The end of a stub has the instance's address, in 48 bits.
		b.Load(asm.W64, asm.DX, asm.At(asm.AX, stubSize-trampolineOff-8))
		b.ShiftImm(asm.Shr, asm.W64, asm.DX, 16)
		b.Load(asm.W64, asm.AX, asm.At(asm.DX, instReal))
		b.Jmp(done)
	})
}

// ifTrampoline continues at no unless AX is the address of a return trampoline, of whatever probe. The last bits
// of AX were compared already (aboutTrampoline). Changes DX.
//
// The loads can't fault: the bytes are in the page of the call instruction before them.
func (b *builder) ifTrampoline(no asm.Label) {
	b.Lea(asm.DX, asm.At(asm.AX, -lowest))
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, 47)
	b.Jcc(asm.NE, no)
	// lea rsp, [rsp-8] followed by push and jump: no compiler emits this.
	b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.AX, 0), 0x24648d48)
	b.Jcc(asm.NE, no)
	b.LoadZX(asm.W16, asm.DX, asm.At(asm.AX, 4))
	b.OpImm(asm.Cmp, asm.W32, asm.DX, 0x68f8)
	b.Jcc(asm.NE, no)
	b.OpMemImm(asm.Cmp, asm.W8, asm.At(asm.AX, 15), -0x34) // int3
	b.Jcc(asm.NE, no)
}

// aboutTrampoline continues at look if the last bits of the return address AX are those of a return trampoline.
// For most other addresses the bytes there need not be read. Changes DX.
func (b *builder) aboutTrampoline(look asm.Label) {
	b.Lea(asm.DX, asm.At(asm.AX, -trampolineOff))
	b.TestImm(asm.W8, asm.DX, stubSize-1)
	b.Jcc(asm.E, look)
}

// take takes an instance for the call whose slot is at DI, or counts it as missed. R11 is the
// pool. It returns with the instance in CX, filled except for the entry's values, and in DI its
// number, from 1, shifted to the distance from the one before the first. Changes AX, DX, SI,
// R11.
//
// It looks at the stripe of the CPU, then at the others. If they have none either, it takes
// over an instance whose call was left by longjmp, an exception or the like: one of the same
// thread, with the slot that the program has now used anew. An instance that another thread is
// just taking has that thread's number, or none, before its slot is set.
func (b *builder) take() {
	first, stripe, scan, next, missed, taken := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	unused, known := b.NewLabel(), b.NewLabel()
	slot, from := asm.At(asm.SP, linkSlot), asm.At(asm.SP, linkFrom)
	head := asm.Indexed(asm.R11, asm.SI, 1, 0)
	b.Store(asm.W64, slot, asm.DI)
	b.likelyCPU()
	b.ShiftImm(asm.Shl, asm.W32, asm.SI, stripeShift)
	b.OpLoad(asm.And, asm.W32, asm.SI, asm.At(asm.R11, poolMask))
	b.Store(asm.W64, from, asm.SI)
	b.Bind(first)
	b.Load(asm.W64, asm.AX, head)
	retry := b.Mark()
	b.Mov(asm.W64, asm.DX, asm.AX)
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, 32)
	b.Jcc(asm.E, stripe)
	b.Load(asm.W32, asm.CX, asm.At(asm.R11, poolSize))
	b.Imul(asm.W32, asm.DX, asm.CX)
	b.Load(asm.W64, asm.CX, asm.At(asm.R11, poolBefore))
	b.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	b.Load(asm.W32, asm.DI, asm.At(asm.CX, instNext))
	b.OpImm(asm.Sub, asm.W32, asm.DI, 1)
	b.Jcc(asm.B, unused)
	b.Bind(known)
	b.ShiftImm(asm.Shl, asm.W64, asm.DI, 32)
	b.Lea(asm.CX, asm.At(asm.AX, 1))
	b.Mov(asm.W32, asm.CX, asm.CX) // the changes wrap at 32 bits
	b.Op(asm.Or, asm.W64, asm.DI, asm.CX)
	b.Lock()
	b.Cmpxchg(asm.W64, head, asm.DI)
	b.Jcc(asm.NE, retry)
	b.Load(asm.W64, asm.CX, asm.At(asm.R11, poolBefore))
	b.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	b.Load(asm.W64, asm.DI, slot)
	b.Bind(taken)
	b.Store(asm.W64, from, asm.DX) // a system call changes DX
	b.ownTID()
	b.fill(func() { b.Load(asm.W64, asm.DI, from) })

	b.Bind(stripe)
	b.OpImm(asm.Add, asm.W32, asm.SI, stripeSize)
	b.OpLoad(asm.And, asm.W32, asm.SI, asm.At(asm.R11, poolMask))
	b.OpLoad(asm.Cmp, asm.W64, asm.SI, from)
	b.Jcc(asm.NE, first)
	b.Load(asm.W64, asm.DI, slot) // all stripes were tried
	b.Load(asm.W64, asm.AX, asm.At(asm.DI, 0))
	look, single := b.NewLabel(), b.NewLabel()
	b.aboutTrampoline(look)
	b.Jmp(single)
	b.Bind(look)
	b.ifTrampoline(single)
	// The slot has another instance's trampoline: functions have jumped to each other, and the call is
	// active.
	b.Jmp(missed)
	b.Bind(single)
	b.Mov(asm.W64, asm.SI, asm.R11) // a system call changes R11
	b.ownTID()
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
	b.later(func() {
		b.Bind(unused)
		b.Mov(asm.W64, asm.DI, asm.AX)
		b.ShiftImm(asm.Shr, asm.W64, asm.DI, 32)
		b.OpLoad(asm.Add, asm.W32, asm.DI, asm.At(asm.R11, poolStride))
		b.OpLoad(asm.Cmp, asm.W32, asm.DI, asm.At(asm.R11, poolCount))
		b.Jcc(asm.BE, known)
		b.Op(asm.Xor, asm.W32, asm.DI, asm.DI)
		b.Jmp(known)
	})
}
