package ring

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// keeps is a Taker that keeps all.
type keeps struct {
	parts map[int][]byte
	until uint64
	err   error
}

func (k *keeps) Take(cpu int, b []byte) error {
	k.parts[cpu] = append(k.parts[cpu], b...)
	return k.err
}

func (k *keeps) Until(tsc uint64) error {
	k.until = tsc
	return nil
}

// records takes apart what was kept of a CPU.
func (k *keeps) records(t *testing.T, cpu int) (out []Raw) {
	t.Helper()
	for b := k.parts[cpu]; len(b) > 0; {
		r, rest, ok := Next(b)
		if !ok {
			t.Fatalf("no record: %x", b)
		}
		if b = rest; r.ID != 0 {
			out = append(out, r)
		}
	}
	return out
}

// TestTaker: records are handed over as they lie in the rings, an unfinished one when it
// is finished, and counted as those that go one by one are; who takes them may change.
func TestTaker(t *testing.T) {
	k := &keeps{parts: map[int][]byte{}}
	var taker Taker = k
	x := newBench(t, 2, Options{Taker: func() Taker { return taker }})
	put := func(cpu int, tid uint32, data ...byte) Reservation {
		t.Helper()
		r, ok := x.p.Reserve(cpu, 7, len(data))
		if !ok {
			t.Fatal("no room")
		}
		r.Fill(tid, x.now(), data)
		return r
	}
	put(0, 1, 1, 0, 0, 0, 0, 0, 0, 0).Commit()
	late := put(1, 2)
	put(1, 3).Commit()
	before := x.now()
	if got := x.poll(t, false); len(got) != 0 {
		t.Errorf("records %v came one by one", got)
	}
	if k.until == 0 || k.until >= before {
		t.Errorf("nothing older than %d comes, it says; one that is older is being written", k.until)
	}
	late.Commit()
	x.poll(t, false)
	if k.until <= before {
		t.Errorf("it waits for %d still", k.until)
	}
	one, two := k.records(t, 0), k.records(t, 1)
	if len(one) != 1 || one[0].ID != 7 || one[0].TID != 1 || one[0].Data[0] != 1 {
		t.Errorf("CPU 0 has %+v", one)
	}
	if len(two) != 2 || two[0].TID != 3 || two[1].TID != 2 {
		t.Errorf("CPU 1 has %+v", two)
	}
	if n := x.c.Probe(7); n.Hits != 3 || n.Recorded != 3 {
		t.Errorf("counted %+v", n)
	}
	taker = nil
	put(0, 4).Commit()
	if got := x.poll(t, false); !slices.Equal(tids(got), []uint32{4}) {
		t.Errorf("got %v", got)
	}
	taker = k
	put(0, 5).Commit()
	x.poll(t, true)
	if one = k.records(t, 0); len(one) != 2 || one[1].TID != 5 || k.until != ^uint64(0) {
		t.Errorf("at the end %+v, until %d", one, k.until)
	}
	if !x.free(0) || !x.free(1) {
		t.Error("the rings aren't empty")
	}
	k.err = errors.New("full")
	put(0, 6).Commit()
	if _, err := x.r.Poll(nil); !errors.Is(err, k.err) {
		t.Errorf("got %v", err)
	}
}

// TestNextHostile: whatever bytes are given, what comes back lies in them.
func TestNextHostile(t *testing.T) {
	good := make([]byte, 24)
	copy(good[:4], u64(uint64(CommitWord(3, 3))))
	if r, rest, ok := Next(good); !ok || r.ID != 3 || len(rest) != 0 {
		t.Fatalf("a whole one is %+v, %v", r, ok)
	}
	for n := range good {
		if _, _, ok := Next(good[:n]); ok {
			t.Errorf("%d bytes of 24 are a record", n)
		}
	}
	for _, w := range []uint32{0, StateWord(3, 3), CommitWord(3, 0), CommitWord(3, 1), CommitWord(3, 4), CommitWord(0, 4)} {
		b := bytes.Clone(good)
		copy(b[:4], u64(uint64(w))[:4])
		if r, _, ok := Next(b); ok {
			t.Errorf("state %#x is %+v", w, r)
		}
	}
}
