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
// frame from the stack. A single hot place is faster with code of its own, which needs no call.
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
	// The pieces for a table in common, by which calls arrive, pass on and leave, and are
	// noted at jumps and at entries; 0 without a table.
	arrive, pass, leave, jump, enter uint64
	notes                            [2]uint64 // jump and enter behind their beginning: DI is the slot
	calls                            Calls     // that table
	by                               *Detour   // with the frame's marks
	rseq                             int32     // Params.Rseq
	tid                              int32     // where threads have their numbers
}

// Fits reports whether detours of such a process may call it.
func (t *Tally) Fits(p *Params) bool { return t.rseq == p.Rseq && t.tid == p.TID.Off }

// What the frame has, from the stack pointer up, where the tally is entered.
const (
	tallyLink  = 0  // where it goes on
	tallyID    = 8  // of the probe
	tallyTemps = 16 // what it uses, then the registers that it keeps
	tallySaved = 32
	// tallyRoom is by how much a detour lowers the stack pointer at first: the red zone,
	// and the saved registers.
	tallyRoom  = redZone + tallySaved - tallyTemps + 8*7
	tallyDepth = tallyRoom + 16
)

// Serves reports whether it has pieces for the calls of a table in common; nil: of none.
func (t *Tally) Serves(k *Calls) bool {
	return k == nil || t.calls.Addr == k.Addr && t.calls.Count == k.Count && t.calls.Shift == k.Shift
}

// BuildTally makes the code to lie at base, for the calls of a table in common, too, if k
// isn't nil.
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
			b.far() // with this piece's frame
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
		t.Code, t.Asks, t.by = d.Code, d.Asks, d
		return t, nil
	})
}

// come emits the beginning of a piece of the tally: rax, the flags and regs are saved in the
// frame.
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

// depart emits the end of a piece: after its ret the detour's frame is gone.
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

// countNamed counts a hit of the probe whose number the frame has, if it is switched on.
// Changes AX, CX, DX, SI and DI.
func (b *builder) countNamed() {
	b.Load(asm.W32, asm.DI, asm.At(asm.SP, tallyID))
	done := b.NewLabel()
	b.countDI(done)
	b.Bind(done)
}

// countDI counts a hit of the probe DI; where it is switched off it goes on at done. Changes
// AX, CX, DX, SI and DI.
func (b *builder) countDI(done asm.Label) {
	back := b.NewLabel()
	b.MovAbs(asm.CX, b.p.Flags)
	b.TestMemImm(asm.W8, asm.Indexed(asm.CX, asm.DI, 4, 0), ring.FlagEnabled)
	b.Jcc(asm.E, done)
	locked := func() {
		b.ImulImm(asm.W32, asm.DI, asm.DI, ring.CounterSize)
		b.area()
		b.Op(asm.Add, asm.W64, asm.SI, asm.DI)
		b.countLocked(0, ring.CounterHits)
		b.frame.took()
	}
	if b.p.countsInSequences() {
		b.sequence(flagsOfAll, func(none asm.Mem) {
			b.Lea(asm.SI, asm.Indexed(asm.SI, asm.DI, 8, 0))
			b.IncMem(asm.W64, b.inSequence(none, int(b.p.TallyOff)))
		}, b.frame.took, func() {
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

// tallies reports whether the hits of all of the probes can be counted by a tally.
func (p *Params) tallies(probes []Probe) bool {
	if p.Tally == nil || p.NoRedZone || p.Look != nil || p.MaxStack != 0 || p.Gate != 0 || len(probes) == 0 {
		return false
	}
	for i := range probes {
		if x := &probes[i]; !x.counts() || x.Inject != nil || x.Birth != nil {
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
		if _, err := planProgram(&probes[i], b.p); err != nil {
			return err
		}
		if id := probes[i].ID; id == 0 || id > ring.MaxID {
			return fmt.Errorf("probe id %d out of range", id)
		}
		b.callTally(probes[i].ID, b.p.Tally.count)
		f.took()
		f.cur.taken = f.body.taken
	}
	return nil
}

// callTally emits a call of a piece of the tally.
func (b *builder) callTally(id uint32, piece uint64) {
	f := &b.frame
	f.lower(tallyRoom)
	f.step()
	b.Raw(0x68) // push imm32, whatever the number
	b.Data32(id)
	f.cur.depth += 8
	f.mark()
	f.step()
	if fits(int64(piece - (b.Here() + 5))) {
		b.CallAddr(piece)
	} else {
		b.CallMem(asm.Rel(b.data(binary.LittleEndian.AppendUint64(nil, piece))))
	}
	f.cur.depth = 0
	f.mark()
}
