package ring

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

func TestCorruptRingIsEmptied(t *testing.T) {
	le := binary.LittleEndian
	for _, tt := range []struct {
		name string
		do   func(x *bench, area, data []byte)
	}{
		{"head too far", func(_ *bench, area, _ []byte) { le.PutUint64(area, 1<<40) }},
		{"head behind", func(_ *bench, area, _ []byte) { le.PutUint64(area, ^uint64(0)-7) }},
		{"head odd", func(_ *bench, area, _ []byte) { le.PutUint64(area, 33) }},
		{"unit 0", func(_ *bench, area, data []byte) { le.PutUint64(area, 64); le.PutUint32(data, 1) }},
		{"record beyond head", func(_ *bench, area, data []byte) { le.PutUint64(area, 64); le.PutUint32(data, CommitWord(1, 9)) }},
		{"no such id", func(_ *bench, area, data []byte) { le.PutUint64(area, 64); le.PutUint32(data, CommitWord(101, 8)) }},
		{"shorter than a header", func(_ *bench, area, data []byte) { le.PutUint64(area, 64); le.PutUint32(data, CommitWord(1, 1)) }},
		{"skip being written", func(_ *bench, area, data []byte) { le.PutUint64(area, 64); le.PutUint32(data, StateWord(0, 8)) }},
		{"hole that changes", func(x *bench, area, data []byte) {
			le.PutUint64(area, 64)
			le.PutUint32(data, StateWord(1, 8))
			x.r.Poll(func(*Record) error { return nil })
			le.PutUint32(data, StateWord(1, 9))
		}},
		{"hole that vanishes", func(x *bench, area, data []byte) {
			le.PutUint64(area, 64)
			le.PutUint32(data, StateWord(1, 8))
			x.r.Poll(func(*Record) error { return nil })
			le.PutUint32(data, 0)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := newBench(t, 2, Options{})
			tt.do(x, x.b[x.l.Area(0):], x.b[x.l.RingData(0):])
			x.put(t, 1, 1, 9, x.now(), "") // the other CPU's ring goes on
			wantTIDs(t, x.poll(t, false), 9)
			if s := x.r.Stats(); s.Corrupt != 1 {
				t.Errorf("stats %+v", s)
			}
			if !x.free(0) {
				t.Error("the room is not cleared")
			}
			if x.headOf(0)%Unit != 0 {
				return // nobody but the target can repair its head
			}
			x.put(t, 0, 1, 10, x.now(), "")
			wantTIDs(t, x.poll(t, false), 10)
			if ln := &x.r.lanes[0]; ln.floor(ln.read) == 0 {
				t.Error("it isn't known how old an unfinished record can be")
			}
		})
	}
}

// The target may write anything at any time.
func FuzzHostileTarget(f *testing.F) {
	f.Add([]byte("\x40\x00\x01\x00\x00\x40\x80"), uint64(1))
	f.Add([]byte{}, uint64(7))
	f.Fuzz(func(t *testing.T, script []byte, seed uint64) {
		x := newBench(t, 2, Options{Abandoned: func(u Unfinished) bool { return u.TID%2 == 0 }})
		rnd := rand.New(rand.NewPCG(seed, 1))
		le := binary.LittleEndian
		emit := func(r *Record) error {
			if r.ID == 0 || r.ID > 100 || len(r.Data)%Unit != 0 || len(r.Data) > MaxRecord {
				t.Fatalf("record %+v", r)
			}
			return nil
		}
		for len(script) > 0 {
			op := script[0]
			script = script[1:]
			cpu := int(op >> 7)
			head := x.l.Area(cpu) + HeadOff
			pos := (x.headOf(cpu) - rnd.Uint64N(200)) % MinRingSize
			at := x.l.RingData(cpu) + int64(pos)
			switch op & 7 {
			case 0:
				le.PutUint64(x.b[head:], rnd.Uint64())
			case 1:
				le.PutUint64(x.b[head:], x.headOf(cpu)+rnd.Uint64N(300))
			case 2:
				le.PutUint32(x.b[at:], rnd.Uint32())
			case 3:
				le.PutUint32(x.b[at&^7:], CommitWord(rnd.Uint32N(110), rnd.IntN(9)))
			case 4:
				le.PutUint32(x.b[at&^7:], StateWord(rnd.Uint32N(110), rnd.IntN(9)))
			case 5:
				x.p.Record(cpu, rnd.Uint32N(110), rnd.Uint32(), rnd.Uint64(), make([]byte, rnd.IntN(100)))
			case 6:
				x.clock.advance(1 << rnd.IntN(32))
				if _, err := x.r.Poll(emit); err != nil {
					t.Fatal(err)
				}
			case 7:
				le.PutUint64(x.b[x.l.Area(cpu)+TailOff:], rnd.Uint64())
			}
		}
		if _, err := x.r.Finish(emit); err != nil {
			t.Fatal(err)
		}
	})
}

func TestHostileTargetAtRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	le := binary.LittleEndian
	x := newBench(t, 2, Options{Abandoned: func(Unfinished) bool { return true }})
	for range 3000 {
		cpu := rnd.IntN(2)
		at := x.l.RingData(cpu)
		h := x.headOf(cpu)
		for range rnd.IntN(20) {
			le.PutUint32(x.b[at+int64((h+rnd.Uint64N(400)*8)%MinRingSize):], CommitWord(rnd.Uint32N(102), rnd.IntN(9)))
		}
		le.PutUint64(x.b[x.l.Area(cpu):], h+rnd.Uint64N(400)*8)
		x.clock.advance(1 << rnd.IntN(33))
		n, err := x.r.Poll(func(*Record) error { return nil })
		if err != nil || n > 2*MinRingSize/HeaderSize {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if x.r.Stats().Corrupt == 0 || x.r.Stats().Records == 0 {
		t.Errorf("stats %+v", x.r.Stats())
	}
}
