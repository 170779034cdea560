package detour

import (
	"encoding/binary"
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Hits that are counted in shared code
//
// If thousands of functions are probed and their hits are only counted, the cost of a hit is
// the memory that it touches: a detour of two hundred bytes for each function pushes the
// program's own code out of the processor's caches. So the detours of such probes are short,
// and call code that does the work for all of them, and is always in the cache:
//
//	lea rsp, [rsp-tallyRoom]; push id; call the tally      the frame
//	the displaced instructions, and a jump back
//
// The tally saves the registers that it uses in the detour's frame, and its ret removes the
// frame from the stack. Code of its own, which needs no call, is faster (owncount.go), but four
// times as long.
//
// A stopped thread in the tally counts as being at the call if its hit isn't taken yet, and
// after the call otherwise (Caller). A shadow stack would remember the call of a thread that is
// led elsewhere, so a process that has one has no tally.

// Tally is that code. It may lie anywhere. Detours near it are shorter.
type Tally struct {
	Base  uint64 // where it must lie
	Code  []byte
	Asks  []Ask
	count uint64
	// Addresses of the pieces for a common table, by which calls arrive, pass on and leave, and are
	// noted at jumps and at entries; 0 without a table.
	arrive, pass, leave, jump, enter uint64
	notes                            [2]uint64    // addresses in jump and enter from which on DI is the slot
	lands                            [2][2]uint64 // addresses of the pieces for Landings, by over and wide
	calls                            Calls        // that table
	by                               *Detour      // has the frame's marks
	rseq                             int32        // Params.Rseq
	tid                              int32        // where threads have their numbers
}

// Fits reports whether detours of such a process may call it.
func (t *Tally) Fits(p *Params) bool { return t.rseq == p.Rseq && t.tid == p.TID.Off }

// The frame when the tally is entered, from the stack pointer up.
const (
	tallyLink  = 0  // return address
	tallyID    = 8  // the probe's number
	tallyTemps = 16 // temporaries, then saved registers
	tallySaved = 32
	// tallyRoom is the number of bytes by which a detour first lowers the stack pointer: for the red
	// zone and the saved registers.
	tallyRoom  = redZone + tallySaved - tallyTemps + 8*7
	tallyDepth = tallyRoom + 16
)

// Serves reports whether it has pieces for the calls of the common table k. A tally serves nil, too.
func (t *Tally) Serves(k *Calls) bool {
	return k == nil || t.calls.Addr == k.Addr && t.calls.Count == k.Count && t.calls.Shift == k.Shift
}

// BuildTally builds the code for address base. If k isn't nil, it has pieces for the calls of that common table.
func BuildTally(base uint64, p *Params, k *Calls) (*Tally, error) {
	if k != nil && (k.check() != nil || !k.Common || k.Go) {
		return nil, fmt.Errorf("calls %+v of a tally are in no table in common", *k)
	}
	return tight(base, p, func(c *asm.Code) (*Tally, error) {
		b := newBuilder(c, p)
		b.shared = true
		piece := func(emit func(), regs ...asm.Reg) uint64 {
			b.Align(hotAlign, 0xcc)
			at := b.Here()
			b.come(regs...)
			b.pieceEnd = b.NewLabel()
			emit()
			b.Bind(b.pieceEnd)
			b.depart()
			b.far() // must run with this piece's frame
			return at
		}
		t := &Tally{Base: base, rseq: p.Rseq, tid: p.TID.Off}
		t.count = piece(b.countNamed, asm.CX, asm.DX, asm.SI, asm.DI)
		if k != nil {
			t.calls, b.table = *k, k
			b.tallyCalls(t, piece)
		}
		d, err := b.finish()
		if err != nil {
			return nil, err
		}
		t.Code, t.Asks, t.by = d.Code, d.Asks(), d
		return t, nil
	})
}

// come emits the beginning of a piece of the tally. It saves rax, the flags and regs in the frame.
func (b *builder) come(regs ...asm.Reg) {
	f := &b.frame
	f.code, f.regs = b.Code, regs
	f.size, f.under = tallyDepth, tallyTemps
	f.cur = mark{depth: tallyDepth}
	f.mark()
	off := int32(tallySaved)
	keep := func(r asm.Reg) {
		b.Store(asm.W64, asm.At(asm.SP, off), r)
		f.cur.saved = append(f.cur.saved[:len(f.cur.saved):len(f.cur.saved)], slot{r, tallyDepth - off})
		f.mark()
		off += 8
	}
	keep(asm.AX)
	b.Lahf()
	b.Set(asm.O, asm.AX)
	f.cur.flags = flagsInAX
	f.mark()
	b.Store(asm.W64, asm.At(asm.SP, off), asm.AX)
	f.cur.word, f.cur.flags = tallyDepth-off, flagsSaved
	f.mark()
	off += 8
	for _, r := range regs {
		keep(r)
	}
	if off > tallyDepth-redZone {
		b.fail(fmt.Errorf("a tally keeps %d registers", len(regs)))
	}
	f.body = f.cur
}

// depart emits the end of a piece. Its ret removes the detour's frame.
func (b *builder) depart() {
	f := &b.frame
	f.cur.taken = f.body.taken
	for n := len(f.cur.saved); n > 1; n-- {
		s := f.cur.saved[n-1]
		b.Load(asm.W64, s.reg, asm.At(asm.SP, tallyDepth-s.off))
		f.cur.saved = f.cur.saved[:n-1]
		f.mark()
	}
	b.Load(asm.W64, asm.AX, asm.At(asm.SP, tallyDepth-f.cur.word))
	f.cur.flags = flagsInAX
	f.mark()
	b.OpImm(asm.Add, asm.W8, asm.AX, 127)
	f.cur.flags = flagsAdded
	f.mark()
	b.Sahf()
	f.cur.flags = flagsLive
	f.mark()
	b.Load(asm.W64, asm.AX, asm.At(asm.SP, tallyDepth-f.cur.saved[0].off))
	f.cur.saved = nil
	f.mark()
	b.RetPop(tallyDepth - 8)
}

// countNamed counts a hit of the probe whose number is in the frame, if the probe is switched on.
// Changes AX, CX, DX, SI and DI.
func (b *builder) countNamed() {
	b.Load(asm.W32, asm.DI, asm.At(asm.SP, tallyID))
	done := b.NewLabel()
	b.countDI(done)
	b.Bind(done)
}

// countDI counts a hit of probe DI. If the probe is switched off, it continues at done. Changes AX, CX, DX, SI and
// DI.
func (b *builder) countDI(done asm.Label) { b.countDIThen(done, b.frame.took) }

// countDIThen is countDI with what marks that the hit is taken.
func (b *builder) countDIThen(done asm.Label, took func()) {
	back := b.NewLabel()
	b.MovAbs(asm.CX, b.p.Flags)
	b.TestMemImm(asm.W8, asm.Indexed(asm.CX, asm.DI, 4, 0), ring.FlagEnabled)
	b.Jcc(asm.E, done)
	locked := func() {
		b.ImulImm(asm.W32, asm.DI, asm.DI, ring.CounterSize)
		b.area()
		b.Op(asm.Add, asm.W64, asm.SI, asm.DI)
		b.countLocked(0, ring.CounterHits)
		took()
	}
	if b.p.countsInSequences() {
		b.sequence(flagsOfAll, func(none asm.Mem) {
			b.Lea(asm.SI, asm.Indexed(asm.SI, asm.DI, 8, 0))
			b.IncMem(asm.W64, b.inSequence(none, int(b.p.TallyOff)))
		}, took, func() {
			locked()
			b.Jmp(back)
		})
	} else {
		locked()
	}
	b.Bind(back)
}

// Holds reports whether an address is in it.
func (t *Tally) Holds(at uint64) bool { return at >= t.Base && at < t.Base+uint64(t.by.size) }

// Caller changes the registers of a thread that is stopped in the tally to those that it has in
// the detour that led there: at the call, one byte before its end, if its hit isn't taken yet,
// otherwise after it. ok is false, and nothing changes, for a thread that isn't in the tally.
func (t *Tally) Caller(r *fetch.Regs, mem symbols.Memory) (ok bool, err error) {
	if !t.Holds(r.IP) {
		return false, nil
	}
	link, err := word(mem, r.GPR[asm.SP]+tallyLink)
	if err != nil {
		return false, fmt.Errorf("read a detour's link: %w", err)
	}
	taken, ok, err := t.by.Undo(r, mem)
	if !ok || err != nil {
		return false, err
	}
	if r.IP = link; taken == 0 {
		r.IP--
		r.GPR[asm.SP] -= tallyDepth - 8
	}
	return true, nil
}

// tallies reports whether a tally can count the hits of all these probes.
func (p *Params) tallies(probes []Probe) bool { return p.Tally != nil && p.onlyCounts(probes) }

// onlyCounts reports whether the hits of all of the probes are counted and nothing else is
// done at them.
func (p *Params) onlyCounts(probes []Probe) bool {
	if p.NoRedZone || p.Look != nil || p.MaxStack != 0 || p.Gate != 0 || len(probes) == 0 {
		return false
	}
	for i := range probes {
		if x := &probes[i]; !x.counts() || x.Inject != nil || x.Birth != nil || x.Landing != nil {
			return false
		}
	}
	return true
}

// tally emits the calls that count the probes' hits.
func (b *builder) tally(probes []Probe) error {
	f := &b.frame
	f.code, f.skip = b.Code, redZone
	f.cur = mark{}
	f.mark()
	for i := range probes {
		if err := b.planCounted(&probes[i]); err != nil {
			return err
		}
		b.callTally(probes[i].ID, b.p.Tally.count)
		f.took()
		f.cur.taken = f.body.taken
	}
	return nil
}

// planCounted refuses a probe whose program, which isn't run, would be refused elsewhere.
func (b *builder) planCounted(x *Probe) error {
	if _, err := planProgram(x, b.p); err != nil {
		return err
	}
	if x.ID == 0 || x.ID > ring.MaxID {
		return fmt.Errorf("probe id %d out of range", x.ID)
	}
	return nil
}

// callTally emits a call of a piece of the tally.
func (b *builder) callTally(id uint32, piece uint64) {
	b.callTallyWith(func(uint64) uint32 { return id }, piece)
}

// callTallyWith is callTally with a number that depends on where the piece goes on.
func (b *builder) callTallyWith(id func(link uint64) uint32, piece uint64) {
	const push, near, far = 5, 5, 6 // bytes of the instructions
	f := &b.frame
	f.lower(tallyRoom)
	f.step()
	link := b.Here() + push + near
	direct := fits(int64(piece - link))
	if !direct {
		link += far - near
	}
	b.Raw(0x68) // push imm32, whatever the number
	b.Data32(id(link))
	f.cur.depth += 8
	f.mark()
	f.step()
	if direct {
		b.CallAddr(piece)
	} else {
		b.CallMem(asm.Rel(b.data(binary.LittleEndian.AppendUint64(nil, piece))))
	}
	f.cur.depth = 0
	f.mark()
}
