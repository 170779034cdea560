package ring

import (
	"encoding/binary"
	"testing"
	"time"
)

// reserveOnly is a writer that died between its reservation and its first
// store.
func (x *bench) reserveOnly(cpu, units int) {
	head := x.l.Area(cpu) + HeadOff
	le := binary.LittleEndian
	le.PutUint64(x.b[head:], le.Uint64(x.b[head:])+uint64(units)*Unit)
}

func TestAbandonedRecordIsLost(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(x *bench)
		lost uint64 // known to be of probe 5
	}{
		{"length known", func(x *bench) { x.p.Reserve(0, 5, 64) }, 1},
		{"partly written", func(x *bench) {
			r, _ := x.p.Reserve(0, 5, 64)
			r.Fill(77, 1, []byte("half a record"))
		}, 1},
		{"length unknown", func(x *bench) { x.reserveOnly(0, 10) }, 0},
		{"two of unknown length", func(x *bench) { x.reserveOnly(0, 10); x.reserveOnly(0, 3) }, 0},
		{"unknown, then known", func(x *bench) { x.reserveOnly(0, 10); x.p.Reserve(0, 5, 8) }, 1},
		{"known, then unknown", func(x *bench) { x.p.Reserve(0, 5, 8); x.reserveOnly(0, 2) }, 1},
		{"over the ring's end", func(x *bench) {
			for x.headOf(0)%MinRingSize != MinRingSize-24 {
				x.reserveSkip(0, 3)
			}
			x.reserveOnly(0, 10)
		}, 0},
	} {
		for _, how := range []string{"finish", "gone", "never"} {
			t.Run(tt.name+", "+how, func(t *testing.T) {
				asked := map[uint32]bool{}
				opts := Options{}
				if how == "gone" {
					opts.Abandoned = func(u Unfinished) bool { asked[u.TID] = true; return true }
				}
				x := newBench(t, 1, opts)
				x.put(t, 0, 1, 1, x.now(), "")
				wantTIDs(t, x.poll(t, false), 1)
				tt.make(x)
				x.put(t, 0, 1, 2, x.now(), "behind")
				x.put(t, 0, 1, 3, x.now(), "behind")
				var all []got
				all = append(all, x.poll(t, false)...)
				if len(asked) > 0 {
					t.Fatal("asked too early")
				}
				for range 5 {
					x.clock.advance(int(2 * time.Second))
					all = append(all, x.poll(t, false)...)
				}
				if how != "gone" {
					if x.headOf(0) == x.tailOf(0) {
						t.Fatal("the room was given back")
					}
				}
				if how == "finish" {
					all = append(all, x.poll(t, true)...)
				}
				if how == "never" {
					return
				}
				wantTIDs(t, all, 2, 3)
				if got := x.c.Probe(5).Lost; got != tt.lost {
					t.Errorf("%d lost, want %d", got, tt.lost)
				}
				if s := x.r.Stats(); s.Abandoned == 0 || s.Corrupt != 0 {
					t.Errorf("stats %+v", s)
				}
				if x.headOf(0) != x.tailOf(0) || !x.free(0) {
					t.Error("the room is not given back clean")
				}
				x.put(t, 0, 1, 4, x.now(), "")
				wantTIDs(t, x.poll(t, false), 4)
			})
		}
	}
}

// What is behind an unfinished record of known length is read all the same,
// until the ring is full.
func TestReadingGoesOnBehindAHole(t *testing.T) {
	x := newBench(t, 1, Options{})
	r, _ := x.p.Reserve(0, 5, 0)
	x.poll(t, false)
	x.clock.advance(int(time.Second))
	n := uint32(0)
	for ; ; n++ {
		ok, err := x.p.Record(0, 1, n, x.now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		wantTIDs(t, x.poll(t, false), n)
	}
	if n != MinRingSize/16-1 {
		t.Errorf("%d records fit behind it", n)
	}
	r.Fill(99, x.now(), nil)
	r.Commit()
	wantTIDs(t, x.poll(t, false), 99)
	if x.headOf(0) != x.tailOf(0) || !x.free(0) {
		t.Error("the room is not given back clean")
	}
}

func (x *bench) headOf(cpu int) uint64 {
	return binary.LittleEndian.Uint64(x.b[x.l.Area(cpu)+HeadOff:])
}

func (x *bench) tailOf(cpu int) uint64 {
	return binary.LittleEndian.Uint64(x.b[x.l.Area(cpu)+TailOff:])
}

// reserveSkip moves a ring on by a skip record and reads it.
func (x *bench) reserveSkip(cpu, units int) {
	at := x.l.RingData(cpu) + int64(x.headOf(cpu)%uint64(x.l.RingSize))
	x.reserveOnly(cpu, units)
	binary.LittleEndian.PutUint32(x.b[at:], SkipWord(units))
	if _, err := x.r.Poll(func(*Record) error { return nil }); err != nil {
		panic(err)
	}
}

// A record that is only reserved hides what is behind it; others wait longer
// for it than for one that can be stepped over.
func TestReservedOnlyHoldsOthersUpLonger(t *testing.T) {
	x := newBench(t, 2, Options{Lateness: time.Millisecond})
	x.put(t, 0, 1, 1, x.now(), "")
	wantTIDs(t, x.poll(t, false), 1)
	at := x.l.RingData(0) + int64(x.headOf(0))
	x.reserveOnly(0, 2)
	stamp := x.now()
	x.put(t, 0, 1, 3, x.now(), "")
	x.put(t, 1, 1, 4, x.now(), "")
	x.poll(t, false)
	x.clock.advance(int(5 * time.Millisecond))
	if g := x.poll(t, false); len(g) != 0 {
		t.Fatalf("records %v came before an older one", tids(g))
	}
	le := binary.LittleEndian
	le.PutUint32(x.b[at+TIDOff:], 2)
	le.PutUint64(x.b[at+TimeOff:], stamp)
	le.PutUint32(x.b[at:], CommitWord(1, 2))
	wantTIDs(t, x.poll(t, false), 2, 3, 4)
	x.reserveOnly(0, 2)
	x.put(t, 1, 1, 5, x.now(), "")
	x.poll(t, false)
	x.clock.advance(int(stuckLateness * time.Millisecond))
	wantTIDs(t, x.poll(t, false), 5)
}
