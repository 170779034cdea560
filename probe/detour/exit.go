package detour

import (
	"fmt"
	"slices"

	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// BuildEnter makes the entry's side of a return probe whose function's exits are probed
// (BuildLeave), to lie at base. tail emits the displaced instructions and the jump back. It
// notes the call. If all of k is in use, the call is not followed, and is counted in
// ring.CounterMissed. The stack stays as it is.
//
// Before that, entry probes of the same instruction take their hits as in Build: this costs
// less than a detour of their own.
func BuildEnter(base uint64, p *Params, entries []Probe, probe Probe, k Calls, tail func(c *asm.Code) error) (*Detour, error) {
	return tight(base, p, func(c *asm.Code) (*Detour, error) { return buildEnter(c, p, entries, probe, k, tail) })
}

func buildEnter(c *asm.Code, p *Params, entries []Probe, probe Probe, k Calls, tail func(c *asm.Code) error) (*Detour, error) {
	b := newBuilder(c, p)
	defer b.free()
	if err := k.check(); err != nil {
		return nil, err
	}
	if err := checkEntry(probe.Program, p); err != nil {
		return nil, err
	}
	if t := p.tallyOf(k); t != nil && probe.counts() && probe.Program.EntrySize() == 0 && (len(entries) == 0 || p.tallies(entries)) {
		if err := b.tally(entries); err != nil {
			return nil, err
		}
		b.noteByTally(&probe, k.noteBits(), t.enter)
		return b.leave(b.Here(), tail)
	}
	// If the exits can't record the program, calls need not be noted.
	if err := b.plan([]Probe{probe}); err != nil {
		return nil, err
	}
	b.frame = frame{scratch: p.Scratch}
	if err := b.plan(entries); err != nil {
		return nil, err
	}
	if !p.NoRedZone {
		b.frame.skip = redZone
	}
	b.frame.regs = append(b.frame.regs, missing(b.frame.regs, asm.DI, asm.R11)...)
	b.frame.under = max(b.frame.under, linkNote)
	b.frame.temps = max(b.frame.temps, captureTemps(probe.Program))
	b.careful(probe.Program)
	if err := b.stack(); err != nil {
		return nil, err
	}
	b.leaveFlags(append(slices.Clip(entries), probe)...)
	b.frame.save(b.Code)
	for i := range entries {
		b.hit(&entries[i], i == 0)
	}
	b.probe, b.prog = &probe, probe.Program
	(&calling{returning: returning{b: b}, k: k}).enter()
	b.frame.restore()
	return b.leave(b.Here(), tail)
}

// BuildLeave makes the detour of a return instruction that takes pop bytes off the stack in
// addition to the return address: one of the probed function, or of one that it may jump to. A
// call that BuildEnter's code has noted in k is recorded as in BuildReturn, and forgotten. Any
// other call just returns. tail emits the instruction.
func BuildLeave(base uint64, p *Params, probe Probe, k Calls, pop uint16, tail func(c *asm.Code) error) (*Detour, error) {
	return tight(base, p, func(c *asm.Code) (*Detour, error) { return buildLeave(c, p, probe, k, pop, tail) })
}

func buildLeave(c *asm.Code, p *Params, probe Probe, k Calls, pop uint16, tail func(c *asm.Code) error) (*Detour, error) {
	b := newBuilder(c, p)
	defer b.free()
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
	found, e := b.frame.temps, &calling{returning: returning{b: b}, k: k}
	if e.inDI = found == 0 && b.keepsDI(&probe); !e.inDI {
		b.frame.temps += 8
	}
	b.frame.under = max(b.frame.under, linkFind)
	if err := b.stack(); err != nil {
		return nil, err
	}
	e.leave(&probe, pop, found)
	return b.leave(b.Here(), tail)
}

// keepsDI reports whether the code of a hit that needs no temporaries doesn't change DI either: it looks at nothing
// before it records.
func (b *builder) keepsDI(probe *Probe) bool {
	return !b.p.Careful && probe.Program.Filter == nil && probe.Control == nil && probe.Bins == nil && probe.Inject == nil && probe.Birth == nil
}

// noteBits are the bits that an entry's or a jump's code tells the code that notes its call.
func (k Calls) noteBits() (bits uint32) {
	if k.Joined {
		bits |= joinedOwner
	}
	if k.StartsOver {
		bits |= startsOver
	}
	if k.Follows {
		bits |= follows
	}
	return bits
}

func (k Calls) check() error {
	if k.Count < 1 || k.Count > MaxInstances || k.Shift < 6 || k.Shift > 10 {
		return fmt.Errorf("a return probe's calls %+v aren't NewCalls'", k)
	}
	return nil
}

// calling emits the two sides of a function that is probed at its exits: entry and exits. In all of it DI is
// the call's key (its slot or GoKey), SI the head of the calls, and CX the call's row.
type calling struct {
	returning
	k Calls
	// inDI says that at an exit DI keeps the address of the entry's values until the row is free.
	inDI bool
}

// returned loads the call's return address into AX.
func (e *calling) returned() {
	if e.k.Go {
		e.b.Load(asm.W64, asm.AX, e.b.frame.above(0))
		return
	}
	e.b.Load(asm.W64, asm.AX, asm.At(asm.DI, 0)) // its slot
}

// enter notes a call, or counts it as missed. If the probe is disabled, the shared code instead forgets the
// call that was noted with the same slot (forgetRow). The code runs in the frame.
func (e *calling) enter() {
	b := e.b
	done, keyless := b.NewLabel(), b.NewLabel()
	b.owns = e.k.Common
	b.ownerBits |= e.k.noteBits()
	if b.probe.Anywhere {
		b.ownerBits |= anywhere
	}
	if e.notesItself() {
		e.key(keyless)
		e.noteHere(done)
	} else {
		e.noteShared(func() { e.key(keyless) }, done)
	}
	b.frame.took()
	if e.k.Go {
		e.returned()
		b.Store(asm.W64, asm.At(asm.CX, callReturn), asm.AX)
		b.Store(asm.W64, asm.At(asm.CX, callReal), asm.AX)
		b.StoreImm(asm.W32, asm.At(asm.CX, callTID), 1)
	}
	e.capture()
	b.Bind(done)
	if e.k.Go {
		b.later(func() {
			b.Bind(keyless)
			b.TestImm(asm.W8, asm.R11, ring.FlagEnabled)
			b.Jcc(asm.E, done)
			b.area()
			b.countLocked(b.probe.ID, ring.CounterMissed)
			b.Jmp(done)
		})
	}
}

// noteShared has the shared code note the call, after key. If that has noted none, it continues at done.
func (e *calling) noteShared(key func(), done asm.Label) {
	b, link := e.b, e.b.NewLabel()
	b.MovAbs(asm.R11, b.p.Flags+4*uint64(b.probe.ID))
	b.Load(asm.W32, asm.R11, asm.At(asm.R11, 0))
	key()
	b.MovAbs(asm.SI, e.k.Addr)
	b.lead(asm.At(asm.SI, headNote), link, b.probe)
	b.Jcc(asm.E, done)
}

// notesItself reports whether the entry notes most calls without the shared code.
func (e *calling) notesItself() bool {
	return e.b.p.Ample && !e.k.Go && !e.k.Common && e.b.p.TID.Seg == asm.FS && len(e.b.p.TID.Path) == 0
}

// noteHere notes the call DI in its first row, as the shared code does, but without the jumps there and back,
// and without loads of what is known here. It loads what it stores before the locked exchange, because some CPUs
// load nothing while they wait for one. If the row is in use, the probe is disabled, or functions have jumped to
// each other, it leaves that to the shared code.
func (e *calling) noteHere(done asm.Label) {
	b := e.b
	shared, noted := b.NewLabel(), b.NewLabel()
	b.MovAbs(asm.CX, b.p.Flags+4*uint64(b.probe.ID))
	b.TestMemImm(asm.W8, asm.At(asm.CX, 0), ring.FlagEnabled)
	b.Jcc(asm.E, shared)
	e.returned()
	b.aboutTrampoline(shared)
	b.Mov(asm.W64, asm.R11, asm.AX)
	b.ownTID()
	b.Mov(asm.W32, asm.DX, asm.AX)
	e.hash()
	b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.CX, callSlot), asm.DI)
	b.Jcc(asm.NE, shared)
	b.Store(asm.W64, asm.At(asm.CX, callReturn), asm.R11)
	b.Store(asm.W64, asm.At(asm.CX, callReal), asm.R11)
	b.Store(asm.W32, asm.At(asm.CX, callTID), asm.DX)
	b.Bind(noted)
	b.later(func() {
		b.Bind(shared)
		e.noteShared(func() {}, done)
		b.Jmp(noted)
	})
}

// leave finds the call that is returning, records it and frees its row.
func (e *calling) leave(probe *Probe, pop uint16, found int) {
	b, f := e.b, &e.b.frame
	same, look, out := b.NewLabel(), b.NewLabel(), b.NewLabel()
	f.save(b.Code)
	e.find(same, look, out)
	b.Jcc(asm.NE, out) // this call was not noted; the noted one with its slot was abandoned
	e.record(probe, pop, found)
	b.Bind(out)
	f.restore()
	b.later(func() { e.findFurther(same, look, out) })
}

// find is for code at the end of a call. It loads the call's row into CX, and compares the return address:
// ZF is set if the call is the one that was noted. If the first possible row isn't the call's, it
// continues at look, which comes back to same. If the call has no row, it continues at out.
func (e *calling) find(same, look, out asm.Label) {
	b := e.b
	e.key(out)
	e.hash()
	b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, callSlot))
	b.Jcc(asm.NE, look)
	b.Bind(same)
	e.returned()
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.CX, callReturn))
}

// findFurther emits the code at look, for find.
func (e *calling) findFurther(same, look, out asm.Label) {
	b := e.b
	b.Bind(look)
	b.lead(asm.At(asm.SI, headFind), b.NewLabel(), nil)
	b.Jcc(asm.NE, same)
	b.Jmp(out)
}

// record records the call whose row is in CX, and frees the row. found is the offset of the temporary that
// keeps the address of the entry's values, unless DI does.
func (e *calling) record(probe *Probe, pop uint16, found int) {
	b, f := e.b, &e.b.frame
	b.where = origin{sp: 8 + int64(pop), entry: found, hasEntry: true, inDI: e.inDI}
	if e.inDI {
		b.Lea(asm.DI, asm.At(asm.CX, callEntry))
	} else {
		b.OpImm(asm.Add, asm.W64, asm.CX, callEntry)
		b.Store(asm.W64, f.temp(found), asm.CX)
	}
	b.returnTail, b.ended = true, false
	b.ending = func(done asm.Label) {
		b.endBy(done, func() { b.entryAt(asm.DI) }, func(s *Shared) uint64 { return s.endCall })
	}
	if b.hit(probe, true); !b.ended {
		b.entryAt(asm.DI)
		b.freeCall()
	}
}
