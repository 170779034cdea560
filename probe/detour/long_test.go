package detour

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// TestLongRecords: records around and far beyond the size from which on their length is coarse
// have their values, and the return address as the last word.
func TestLongRecords(t *testing.T) {
	for _, n := range []int{2, 3, 7} {
		for _, last := range []int{0, 1, 7, 8, 9, 55, 64, 1000, 4000, fetch.MaxString} {
			longRecord(t, n, last)
		}
	}
}

// longRecord records some strings of which the last has that many bytes, the others as many as a string may have.
func longRecord(t *testing.T, n, last int) {
	t.Helper()
	const page = 8192
	m := newMachine(t, 1, 64<<10, shared{dataAt + 1<<20, 0, page * 8, protRW})
	text := "r f"
	for i := range n {
		text += fmt.Sprintf(" s%d=+%d(%%si):string", i, i*page)
		size := fetch.MaxString
		if i == n-1 {
			size = last
		}
		copy(m.at(dataAt+1<<20+uint64(i*page)), strings.Repeat("x", size)+"\x00")
	}
	prog := must(t, text)
	d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
		return BuildExit(base, m.params(), []Probe{{ID: 2, Program: prog}}, nil, func(c *asm.Code) error { c.Ret(); return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	regs := fetch.Regs{Flags: 2}
	sp := uint64(stackAt + 4096)
	regs.GPR[fetch.SP], regs.GPR[fetch.SI] = sp, dataAt+1<<20
	m.put64(sp, m.after)
	m.setCase(0, d.Base, &regs, &fetch.Vector{})
	m.run(1)
	rec := m.at(ringAt)
	id, units, committed := ring.SplitState(binary.LittleEndian.Uint32(rec))
	size := uint64(units) * ring.Unit
	if id != 2 || !committed || m.get64(cpusAt+ring.HeadOff) != size || size%ring.Unit != 0 || size > ring.ExactSize && size%ring.CoarseUnit != 0 {
		t.Fatalf("%d strings, the last of %d: record of %d bytes of probe %d, committed %v; %d are reserved", n, last, size, id, committed, m.get64(cpusAt+ring.HeadOff))
	}
	data := rec[ring.DataOff:size]
	if ra := binary.LittleEndian.Uint64(data[len(data)-ReturnTail:]); ra != m.after {
		t.Errorf("%d strings, the last of %d: returns to %#x", n, last, ra)
	}
	vals, err := prog.Decode(data[:len(data)-ReturnTail], nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range vals {
		want := fetch.MaxString
		if i == n-1 {
			want = last
		}
		if want = min(want, fetch.MaxString); len(v.Bytes) < want-1 || !bytes.Equal(v.Bytes, bytes.Repeat([]byte("x"), len(v.Bytes))) {
			t.Errorf("%d strings, the last of %d: the %dth has %d bytes", n, last, i, len(v.Bytes))
		}
	}
}

// TestEvictsLong: records of any length are taken whole from a full ring.
func TestEvictsLong(t *testing.T) {
	for _, units := range []int{3, 1535, 1536, 1544, 4096} {
		m := newMachine(t, 1, 1<<20, shared{cpusAt + 1<<20, 0, 1 << 20, protRW})
		size := uint64(ring.StampSize + units*ring.Unit)
		n := testRing / size
		for i := range n {
			m.put64(ringAt+i*size, fullFrom+i*size)
			binary.LittleEndian.PutUint32(m.at(ringAt+i*size+ring.StampSize), ring.CommitWord(2, units))
		}
		m.put64(cpusAt+ring.TailOff, fullFrom)
		m.put64(cpusAt+ring.HeadOff, fullFrom+n*size)
		p := m.params()
		p.Overwrite = true
		fill := testRing - n*size // room that is left takes these hits
		hits := int(fill/32) + 2
		d, err := m.place(func(base uint64, tail func(c *asm.Code) error) (*Detour, error) {
			return Build(base, p, []Probe{{ID: 1, Program: must(t, "p f a=%di")}}, tail)
		})
		if err != nil {
			t.Fatal(err)
		}
		r := fetch.Regs{}
		r.GPR[fetch.SP] = stackAt + stackSize/2
		for range hits {
			m.setCase(0, d.Base, &r, &fetch.Vector{})
			m.run(1)
		}
		tail := m.get64(cpusAt+ring.TailOff) - fullFrom
		if over := m.get64(cpusAt + ring.OverOff); tail == 0 || tail%size != 0 || over*size != tail || m.taken(2) != over || m.counter(1, ring.CounterLost) != 0 {
			t.Errorf("records of %d bytes: the tail moved by %d, %d overwritten, %d counted, %d lost", size, tail, over, m.taken(2), m.counter(1, ring.CounterLost))
		}
	}
}
