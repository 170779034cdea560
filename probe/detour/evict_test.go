package detour

import (
	"encoding/binary"
	"slices"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// What a machine's ring is filled with by fillRing: records of probe 2, of four words with
// their stamps.
const (
	fullFrom  = 1 << 40
	fullUnits = 3
	fullBytes = ring.StampSize + fullUnits*ring.Unit
)

// fillRing makes the machine's ring one without room, from a position on.
func (m *machine) fillRing() { m.fillRingOf(fullUnits, 2) }

// fillRingOf is fillRing with records of so many units, with their stamps, of ids in turn.
func (m *machine) fillRingOf(units uint64, ids ...uint32) {
	for pos, n := uint64(0), 0; pos < testRing; n++ {
		m.put64(ringAt+pos, fullFrom+pos)
		binary.LittleEndian.PutUint32(m.at(ringAt+pos+ring.StampSize), ring.CommitWord(ids[n%len(ids)], int(units)))
		pos += ring.StampSize + units*ring.Unit
	}
	m.put64(cpusAt+ring.TailOff, fullFrom)
	m.put64(cpusAt+ring.HeadOff, fullFrom+testRing)
}

// TestGivesUp has a hit come to a full ring whose oldest record isn't finished: it is
// given up, and counted, once hits were lost there in enough periods, whatever the
// counters of other CPUs have said; and what is behind it stays.
func TestGivesUp(t *testing.T) {
	now := ring.SystemClock{}.TSC() >> ring.StuckShift
	const (
		known   = iota // a record that says how long it is
		unknown        // room that nothing was written to
		both           // the second doesn't say either
	)
	for _, tt := range []struct {
		name  string
		what  int
		first bool // nobody has met it
		last  uint64
		tries uint64

		tail    uint64 // behind fullFrom, at least
		given   uint64 // of probe 2
		lost    uint64 // of the hit's
		counted uint64 // its periods, if it stays
	}{
		{name: "met first", what: known, first: true, last: 0, tries: 1 << 40, lost: 1},
		{name: "the same period", what: known, last: now + 1<<20, tries: 1 << 40, lost: 1, counted: 1 << 40},
		{name: "another CPU is ahead", what: known, last: 1 << 62, tries: ring.StuckPeriods, lost: 1, counted: ring.StuckPeriods},
		{name: "too few periods", what: known, last: now - 5, tries: ring.StuckPeriods - 2, lost: 1, counted: ring.StuckPeriods - 1},
		{name: "periods enough", what: known, last: now - 5, tries: ring.StuckPeriods - 1, tail: fullBytes, given: 1},
		{name: "long ago", what: known, last: 0, tries: 0, lost: 1, counted: 1},
		{name: "no length", what: unknown, last: now - 5, tries: ring.StuckPeriods, tail: fullBytes},
		{name: "no length, twice", what: both, last: now - 5, tries: ring.StuckPeriods, tail: 2 * fullBytes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, 1, 1<<20, shared{cpusAt + 1<<20, 0, 1 << 20, protRW})
			m.fillRing()
			switch tt.what {
			case known:
				binary.LittleEndian.PutUint32(m.at(ringAt+ring.StampSize), ring.StateWord(2, fullUnits))
			case both:
				m.put64(ringAt+fullBytes, 1)
				fallthrough
			case unknown:
				m.put64(ringAt, 1)
			}
			if !tt.first {
				m.put64(cpusAt+ring.StuckOff, fullFrom+1)
			}
			m.put64(cpusAt+ring.StuckLast, tt.last)
			m.put64(cpusAt+ring.StuckTry, tt.tries)
			p := m.params()
			p.Overwrite = true
			d, err := m.place(func(base uint64, tail func(c *asm.Code) error) (*Detour, error) {
				return Build(base, p, []Probe{{ID: 1, Program: must(t, "p f a=%di")}}, tail)
			})
			if err != nil {
				t.Fatal(err)
			}
			r := fetch.Regs{}
			r.GPR[fetch.SP] = stackAt + stackSize/2
			m.setCase(0, d.Base, &r, &fetch.Vector{})
			m.run(1)
			m.checkCase(0)

			tail, head := m.get64(cpusAt+ring.TailOff)-fullFrom, m.get64(cpusAt+ring.HeadOff)-fullFrom
			if tail < tt.tail || (tail == 0) != (tt.tail == 0) || (head > testRing) != (tt.lost == 0) || tail == testRing {
				t.Errorf("tail moved by %d, head at %d of %d", tail, head, testRing)
			}
			given := m.get64(cpusAt + 1<<20 + ring.CountersOff + 2*ring.CounterSize + ring.ReaderLost)
			if lost := m.counter(1, ring.CounterLost); given != tt.given || lost != tt.lost {
				t.Errorf("%d given up, %d lost", given, lost)
			}
			// Nothing but what was passed over is out of the ring uncounted.
			over := m.get64(cpusAt + ring.OverOff)
			if want := max(tail, tt.tail) - tt.tail; over*fullBytes != want || m.taken(2) != over {
				t.Errorf("%d overwritten and %d counted of %d bytes", over, m.taken(2), want)
			}
			if n := m.get64(cpusAt + ring.StuckTry); tt.lost != 0 && n != tt.counted {
				t.Errorf("%d periods, want %d", n, tt.counted)
			}
		})
	}
}

// TestHazardP44 has a hit leave at each instruction, as by siglongjmp from a signal's
// handler, while it makes room in a full ring. The next one ends what it has begun: what
// has left the ring is counted, once.
func TestHazardP44(t *testing.T) {
	const units, bytes = 99, ring.StampSize + 99*ring.Unit
	ids := []uint32{2, 3, 2, 7, 200, 3}
	m := newMachine(t, 2, 1<<20, shared{cpusAt + 1<<20, 0, 1 << 20, protRW}, shared{logAt, 0, 8 << 20, protRW})
	p := m.params()
	p.Overwrite = true
	place := func() *Detour {
		d, err := m.place(func(base uint64, tail func(c *asm.Code) error) (*Detour, error) {
			return Build(base, p, []Probe{{ID: 1, Program: must(t, "p f a=%di")}}, tail)
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	leaves, stays := place(), place()
	out := asm.New(m.code)
	out.MovAbs(asm.SP, stackAt+stackSize/2)
	out.MovAbs(asm.AX, m.after)
	out.JmpReg(asm.AX)
	code, err := out.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	copy(m.at(m.code), code)
	area := m.at(cpusAt)[:1<<20]
	empty := slices.Clone(area)
	r := fetch.Regs{}
	r.GPR[fetch.SP], r.GPR[fetch.BX] = stackAt+stackSize/2, 0x1122334455667788
	reset := func() {
		copy(area, empty)
		m.fillRingOf(units, ids...)
		m.setCase(0, leaves.Base, &r, &fetch.Vector{})
		m.setCase(1, stays.Base, &r, &fetch.Vector{})
	}
	reset()
	traced := r
	traced.Flags = 0x100
	m.setCase(0, leaves.Base, &traced, &fetch.Vector{})
	met, moved := map[uint64]bool{}, 0
	for _, st := range m.step(leaves) {
		at := st.regs.IP
		if met[at] {
			continue
		}
		met[at] = true
		reset()
		copy(m.at(leaves.Base), leaves.Code)
		m.at(at)[0] = 0xf4 // hlt, which faults
		if err := m.table.Insert(FaultKey(at), m.code); err != nil {
			t.Fatal(err)
		}
		m.run(2)
		if !m.checkCase(1) {
			t.Fatalf("left at +%#x", at-leaves.Base)
		}
		tail := m.get64(cpusAt+ring.TailOff) - fullFrom
		if tail == 0 || tail%bytes != 0 {
			t.Fatalf("left at +%#x: the tail is %d further", at-leaves.Base, tail)
		}
		want := map[uint32]uint64{}
		for n := range tail / bytes {
			want[ids[n%uint64(len(ids))]]++
		}
		for _, id := range ids {
			if got := m.taken(id); got != want[id] {
				t.Errorf("left at +%#x: %d records of probe %d are counted, want %d", at-leaves.Base, got, id, want[id])
			}
		}
		if over, to := m.get64(cpusAt+ring.OverOff), m.get64(cpusAt+ring.OverTo); over != tail/bytes || to != fullFrom+tail {
			t.Errorf("left at +%#x: %d records up to %d are counted, of %d", at-leaves.Base, over, to-fullFrom, tail)
		}
		if tail < 2*ring.ChunkSize {
			moved++
		}
	}
	if len(met) < 100 || moved < 100 {
		t.Errorf("left at %d instructions, the other found %d of them in its way", len(met), moved)
	}
}
