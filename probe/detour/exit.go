package detour

import (
	"fmt"

	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// BuildEnter makes the entry's side of a return probe whose function's exits are
// probed (BuildLeave), to lie at base; tail emits the displaced instructions and
// the jump back. It notes the call; with all of k in use the call is not
// followed, and counted in ring.CounterMissed. The stack stays as it is. Before
// that the probes of entries, which are at the same instruction, take their hits
// as in Build: they cost less with it than in a detour of their own.
func BuildEnter(base uint64, p *Params, entries []Probe, probe Probe, k Calls, tail func(c *asm.Code) error) (*Detour, error) {
	b := newBuilder(base, p)
	if err := k.check(); err != nil {
		return nil, err
	}
	if err := checkEntry(probe.Program, p); err != nil {
		return nil, err
	}
	// What the exits can't do the entry needn't begin.
	if err := b.plan([]Probe{probe}); err != nil {
		return nil, err
	}
	b.frame = frame{}
	if err := b.plan(entries); err != nil {
		return nil, err
	}
	if !p.NoRedZone {
		b.frame.skip = redZone
	}
	b.frame.regs = append(b.frame.regs, missing(b.frame.regs, asm.DI, asm.R11)...)
	own := b.frame.temps
	b.frame.temps += entering
	if err := b.stack(); err != nil {
		return nil, err
	}
	b.frame.save(b.Code)
	if len(entries) > 0 {
		b.area()
	}
	for i := range entries {
		b.hit(&entries[i])
	}
	b.probe, b.prog = &probe, probe.Program
	(&calling{returning{b: b}, k, own}).enter()
	b.frame.restore()
	return b.leave(b.Here(), tail)
}

// BuildLeave makes the detour of a return instruction that takes pop bytes off
// the stack besides the return address: one of the probed function, or of one
// that it may jump to. A call that BuildEnter's code has noted in k is recorded
// as BuildReturn does, and forgotten; any other just returns. tail emits the
// instruction.
func BuildLeave(base uint64, p *Params, probe Probe, k Calls, pop uint16, tail func(c *asm.Code) error) (*Detour, error) {
	b := newBuilder(base, p)
	if err := k.check(); err != nil {
		return nil, err
	}
	if !p.NoRedZone {
		b.frame.skip = redZone
	}
	if err := b.plan([]Probe{probe}); err != nil {
		return nil, err
	}
	b.frame.regs = append(b.frame.regs, missing(b.frame.regs, asm.DI)...)
	found := b.frame.temps
	b.frame.temps += 16
	if err := b.stack(); err != nil {
		return nil, err
	}
	(&calling{returning{b: b}, k, 0}).leave(&probe, pop, found)
	return b.leave(b.Here(), tail)
}

func (k Calls) check() error {
	if k.Count < 1 || k.Count > MaxInstances || k.Shift < 6 || k.Shift > 10 {
		return fmt.Errorf("a return probe's calls %+v aren't NewCalls'", k)
	}
	return nil
}

// Temporaries of BuildEnter.
const (
	ownTID   = 0  // the thread's number
	freed    = 8  // whether rows were found that are over
	retried  = 16 // whether that was looked for already
	entering = 24
)

// calling emits the two sides of an exit-probed function. DI is what the call is
// known by, its slot or its GoKey, all the time, CX its row.
type calling struct {
	returning
	k   Calls
	own int // where enter's temporaries begin
}

// temp is a temporary of enter.
func (e *calling) temp(off int) asm.Mem { return e.b.frame.temp(e.own + off) }

// golden spreads slots, which are alike in most bits, over the rows (Knuth,
// The Art of Computer Programming, vol. 3, 6.4).
const golden = 0x9e3779b97f4a7c15

// hash makes CX the row that the slot in DI is looked for at first. Changes AX.
func (e *calling) hash() {
	b := e.b
	b.MovImm(asm.AX, golden)
	b.Imul(asm.W64, asm.AX, asm.DI)
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, 32)
	b.ImulImm(asm.W64, asm.AX, asm.AX, int32(e.k.Count))
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, 32)
	b.ShiftImm(asm.Shl, asm.W64, asm.AX, e.k.Shift)
	b.MovAbs(asm.CX, e.k.Addr)
	b.Op(asm.Add, asm.W64, asm.CX, asm.AX)
}

// next makes CX the row behind it, the first behind the last. Changes AX.
func (e *calling) next() {
	b := e.b
	on := b.NewLabel()
	b.OpImm(asm.Add, asm.W64, asm.CX, 1<<e.k.Shift)
	b.MovAbs(asm.AX, e.k.Addr+uint64(e.k.Size()))
	b.Op(asm.Cmp, asm.W64, asm.CX, asm.AX)
	b.Jcc(asm.NE, on)
	b.MovAbs(asm.CX, e.k.Addr)
	b.Bind(on)
}

// drop frees the row at CX.
func (e *calling) drop() {
	e.b.StoreImm(asm.W32, asm.At(asm.CX, callTID), 0)
	e.b.StoreImm(asm.W64, asm.At(asm.CX, callSlot), 0)
}

// enter notes a call, or counts it as missed. It runs in the frame.
func (e *calling) enter() {
	b := e.b
	done, taken, again, look, missed := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.MovAbs(asm.AX, b.p.Flags+4*uint64(b.probe.ID))
	b.TestMemImm(asm.W8, asm.At(asm.AX, 0), ring.FlagEnabled)
	b.Jcc(asm.E, done)
	b.StoreImm(asm.W64, e.temp(retried), 0)
	e.key(missed)

	b.Bind(again)
	e.hash()
	b.Load(asm.W64, asm.AX, asm.At(asm.CX, callSlot))
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.NE, look)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.CX, callSlot), asm.DI) // AX is 0
	b.Jcc(asm.NE, look)

	b.Bind(taken)
	b.Load(asm.W64, asm.AX, b.frame.above(0))
	b.Store(asm.W64, asm.At(asm.CX, callReturn), asm.AX)
	if e.k.Go {
		b.Store(asm.W64, asm.At(asm.CX, callReal), asm.AX)
		b.StoreImm(asm.W32, asm.At(asm.CX, callTID), 1)
	} else {
		e.behind()
		b.Store(asm.W64, asm.At(asm.CX, callReal), asm.AX)
		b.tid()
		b.Store(asm.W32, asm.At(asm.CX, callTID), asm.AX)
	}
	e.capture()
	b.Bind(done)
	b.cold = append(b.cold, func() {
		b.Bind(look)
		e.takeNext(taken)
		if !e.k.Go {
			e.reclaim(again)
		}
		b.Bind(missed)
		b.area()
		b.count(ring.CounterMissed)
		b.Jmp(done)
	})
}

// takeNext looks at all rows from the one at CX on for a free one, or for the
// slot's own, whose call was left without an exit. It goes on at taken, or behind
// if there is none. Changes AX, CX, DX, SI, R11.
func (e *calling) takeNext(taken asm.Label) {
	b := e.b
	search, next, reach := b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.Mov(asm.W64, asm.SI, asm.CX)
	b.MovImm(asm.DX, uint64(e.k.Count))
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
	b.MovImm(asm.R11, uint64(e.k.Count))
	b.Op(asm.Sub, asm.W32, asm.R11, asm.DX)
	b.Bind(reach)
	b.Load(asm.W32, asm.AX, asm.At(asm.SI, callReach))
	b.Op(asm.Cmp, asm.W32, asm.AX, asm.R11)
	b.Jcc(asm.AE, taken)
	b.Lock()
	b.Cmpxchg(asm.W32, asm.At(asm.SI, callReach), asm.R11)
	b.Jcc(asm.NE, reach)
	b.Jmp(taken)
	b.Bind(next)
	e.next()
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.NE, search)
}

const (
	// How far below its end a thread's own stack is believed to reach. A call
	// on it that lies below the one that is just entered is over.
	mainReach   = 64 << 20
	threadReach = 1 << 20
)

// reclaim frees rows of this thread whose calls are over, and goes on at again
// if there were any; else behind. Over are those below on the same stack, and
// those whose slot the program has used anew. Slots are read only where nothing
// can fault: a load that may would need a net for SIGSEGV and SIGBUS, which can't
// leave again if the program sets a handler of its own meanwhile. These are the
// slots in the page of the one that is just entered and, if that is on the main
// stack, those above it there: the kernel maps nothing else within 128 MB below
// that stack's end (mmap_base, arch/x86/mm/mmap.c). The other rows are the
// tracer's to free.
func (e *calling) reclaim(again asm.Label) {
	b := e.b
	scan, below, alien, near, look, dead, on, none := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.TestMemImm(asm.W8, e.temp(retried), 1)
	b.Jcc(asm.NE, none)
	b.StoreImm(asm.W64, e.temp(retried), 1)
	b.StoreImm(asm.W64, e.temp(freed), 0)
	b.tid()
	b.Store(asm.W64, e.temp(ownTID), asm.AX)
	b.MovAbs(asm.CX, e.k.Addr)
	b.MovImm(asm.DX, uint64(e.k.Count))
	b.Bind(scan)
	b.Load(asm.W32, asm.AX, asm.At(asm.CX, callTID))
	b.OpLoad(asm.Cmp, asm.W32, asm.AX, e.temp(ownTID))
	b.Jcc(asm.NE, on)
	b.Load(asm.W64, asm.SI, asm.At(asm.CX, callSlot))
	b.Op(asm.Cmp, asm.W64, asm.SI, asm.DI)
	b.Jcc(asm.B, below)
	if e.k.MainStack != 0 {
		// From the one entered up to the stack's end?
		b.MovImm(asm.AX, e.k.MainStack-8)
		b.Op(asm.Cmp, asm.W64, asm.SI, asm.AX)
		b.Jcc(asm.A, near)
		b.Op(asm.Sub, asm.W64, asm.AX, asm.DI)
		b.OpImm(asm.Cmp, asm.W64, asm.AX, mainReach)
		b.Jcc(asm.B, look)
	}
	b.Bind(near) // all its bytes in the page of the slot at DI?
	b.Lea(asm.AX, asm.At(asm.SI, 7))
	b.Op(asm.Xor, asm.W64, asm.AX, asm.DI)
	b.Mov(asm.W64, asm.R11, asm.SI)
	b.Op(asm.Xor, asm.W64, asm.R11, asm.DI)
	b.Op(asm.Or, asm.W64, asm.AX, asm.R11)
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, 12)
	b.Jcc(asm.NE, on)
	b.Bind(look)
	b.Load(asm.W64, asm.AX, asm.At(asm.SI, 0))
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.CX, callReturn))
	b.Jcc(asm.E, on)
	b.Bind(dead)
	e.drop()
	b.StoreImm(asm.W64, e.temp(freed), 1)
	b.Bind(on)
	b.OpImm(asm.Add, asm.W64, asm.CX, 1<<e.k.Shift)
	b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
	b.Jcc(asm.NE, scan)
	b.TestMemImm(asm.W8, e.temp(freed), 1)
	b.Jcc(asm.NE, again)
	b.Jmp(none)

	// Both within reach of the end of the same stack?
	b.Bind(below)
	within := func(reach int32, no asm.Label) {
		b.Mov(asm.W64, asm.R11, asm.AX)
		b.Op(asm.Sub, asm.W64, asm.AX, asm.DI)
		b.OpImm(asm.Cmp, asm.W64, asm.AX, reach)
		b.Jcc(asm.AE, no)
		b.Op(asm.Sub, asm.W64, asm.R11, asm.SI)
		b.OpImm(asm.Cmp, asm.W64, asm.R11, reach)
		b.Jcc(asm.B, dead)
	}
	if e.k.MainStack != 0 {
		b.MovImm(asm.AX, e.k.MainStack)
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
	b.Bind(none)
}

// leave finds the call that goes, records it and frees its row.
func (e *calling) leave(probe *Probe, pop uint16, found int) {
	b, f := e.b, &e.b.frame
	same, look, out := b.NewLabel(), b.NewLabel(), b.NewLabel()
	f.save(b.Code)
	e.key(out)
	e.hash()
	b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, callSlot))
	b.Jcc(asm.NE, look)
	b.Bind(same)
	b.Load(asm.W64, asm.AX, f.above(0))
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.CX, callReturn))
	b.Jcc(asm.NE, out) // a call that was entered unseen, over one that was left
	b.Load(asm.W64, asm.AX, asm.At(asm.CX, callReal))
	b.Store(asm.W64, f.temp(found+8), asm.AX)
	b.OpImm(asm.Add, asm.W64, asm.CX, callEntry)
	b.Store(asm.W64, f.temp(found), asm.CX)
	b.where = origin{ipAbove: int64(found + 8 - f.size), hasIP: true, sp: 8 + int64(pop), entry: found, hasEntry: true}
	b.returnTail = true
	b.area()
	b.hit(probe)
	b.Load(asm.W64, asm.CX, f.temp(found))
	b.OpImm(asm.Sub, asm.W64, asm.CX, callEntry)
	e.drop()
	b.Bind(out)
	f.restore()
	b.cold = append(b.cold, func() {
		b.Bind(look)
		search := b.NewLabel()
		b.Load(asm.W32, asm.DX, asm.At(asm.CX, callReach))
		b.Test(asm.W32, asm.DX, asm.DX)
		b.Jcc(asm.E, out)
		b.Bind(search)
		e.next()
		b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, callSlot))
		b.Jcc(asm.E, same)
		b.OpImm(asm.Sub, asm.W32, asm.DX, 1)
		b.Jcc(asm.NE, search)
		b.Jmp(out)
	})
}
