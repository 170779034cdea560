package detour

import (
	"encoding/binary"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// What a machine's ring is filled with: records of probe 2, of four words with their
// stamps.
const (
	fullFrom  = 1 << 40
	fullUnits = 3
	fullBytes = ring.StampSize + fullUnits*ring.Unit
)

// fillRing makes the machine's ring one without room, from a position on.
func (m *machine) fillRing() {
	for pos := uint64(0); pos < testRing; pos += fullBytes {
		m.put64(ringAt+pos, fullFrom+pos)
		binary.LittleEndian.PutUint32(m.at(ringAt+pos+ring.StampSize), ring.CommitWord(2, fullUnits))
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
			if want := max(tail, tt.tail) - tt.tail; over*fullBytes != want || m.counter(2, ring.CounterHits) != over {
				t.Errorf("%d overwritten and %d counted of %d bytes", over, m.counter(2, ring.CounterHits), want)
			}
			if n := m.get64(cpusAt + ring.StuckTry); tt.lost != 0 && n != tt.counted {
				t.Errorf("%d periods, want %d", n, tt.counted)
			}
		})
	}
}
