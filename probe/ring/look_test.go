package ring

import (
	"errors"
	"testing"
	"time"
)

// hits checks a probe's counters after a look.
func (x *bench) hits(t *testing.T, id uint32, want Counts) {
	t.Helper()
	x.r.Look()
	if c := x.c.Probe(id); c != want {
		t.Errorf("probe %d: %+v, want %+v", id, c, want)
	}
}

// TestLook: a record is a hit from its commit on, once, whoever looks how often
// and takes it when.
func TestLook(t *testing.T) {
	x := newBench(t, 2, Options{})
	x.put(t, 0, 1, 1, x.now(), "")
	x.put(t, 1, 1, 1, x.now(), "long enough to be another size")
	x.put(t, 1, 2, 1, x.now(), "")
	if c := x.c.Probe(1); c.Hits != 0 {
		t.Errorf("%+v before anybody has looked", c)
	}
	for range 3 {
		x.hits(t, 1, Counts{Hits: 2})
		x.hits(t, 2, Counts{Hits: 1})
	}
	x.put(t, 0, 1, 1, x.now(), "")
	x.hits(t, 1, Counts{Hits: 3})
	x.poll(t, false)
	x.hits(t, 1, Counts{Hits: 3, Recorded: 3})
	x.put(t, 0, 1, 1, x.now(), "")
	x.poll(t, false) // takes what nobody has looked at
	x.hits(t, 1, Counts{Hits: 4, Recorded: 4})
	x.hits(t, 2, Counts{Hits: 1, Recorded: 1})
	x.p.Count(0, 1, CounterFiltered, 2)
	x.p.Count(1, 1, CounterLost, 3)
	x.hits(t, 1, Counts{Hits: 9, Recorded: 4, Filtered: 2, Lost: 3})
}

// TestLookUnfinished: a record that is being written is no hit yet; those behind
// it are, and it when it is finished, or lost when it is given up.
func TestLookUnfinished(t *testing.T) {
	x := newBench(t, 1, Options{})
	r, ok := x.p.Reserve(0, 1, 40)
	lost, _ := x.p.Reserve(0, 3, 8)
	if !ok {
		t.Fatal("no room")
	}
	x.put(t, 0, 2, 1, x.now(), "")
	x.hits(t, 1, Counts{})
	x.hits(t, 2, Counts{Hits: 1})
	x.poll(t, false) // the record behind waits for the one being written
	x.hits(t, 2, Counts{Hits: 1})
	r.Fill(1, x.now(), []byte("short"))
	r.CommitShort(8)
	x.hits(t, 1, Counts{Hits: 1})
	x.poll(t, false)
	x.hits(t, 1, Counts{Hits: 1})
	x.hits(t, 3, Counts{})
	lost.Fill(1, x.now(), nil)
	x.poll(t, true)
	x.hits(t, 1, Counts{Hits: 1, Recorded: 1})
	x.hits(t, 2, Counts{Hits: 1, Recorded: 1})
	x.hits(t, 3, Counts{Hits: 1, Lost: 1, Unfinished: 1})
}

// TestLookWhileGiving: the counters follow the program while somebody who is
// given a record takes his time, also to himself.
func TestLookWhileGiving(t *testing.T) {
	x := newBench(t, 1, Options{})
	x.put(t, 0, 1, 1, x.now(), "")
	x.clock.advance(2 * slop)
	stop := errors.New("seen enough")
	_, err := x.r.Poll(func(*Record) error {
		x.hits(t, 1, Counts{Hits: 1})
		x.put(t, 0, 1, 1, x.now(), "")
		x.hits(t, 1, Counts{Hits: 2})
		x.put(t, 0, 1, 1, x.now(), "")
		done := make(chan bool)
		go func() {
			x.r.LookStale() // the first time it has been taken from
			if c := x.c.Probe(1); c.Hits != 2 {
				t.Errorf("%+v", c)
			}
			x.r.LookStale()
			done <- true
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			return errors.New("who looks waits for who is given records")
		}
		if c := x.c.Probe(1); c.Hits != 3 {
			t.Errorf("%+v", c)
		}
		return stop
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	wantTIDs(t, x.poll(t, true), 1, 1)
	x.hits(t, 1, Counts{Hits: 3, Recorded: 3})
}

// TestLookAtNonsense: what no detour writes is no hit, and is found out by the
// next look that takes.
func TestLookAtNonsense(t *testing.T) {
	for _, word := range []uint32{CommitWord(90, 0), CommitWord(101, 3), CommitWord(90, 4000), ^uint32(0)} {
		x := newBench(t, 1, Options{})
		x.put(t, 0, 1, 1, x.now(), "")
		r, _ := x.p.Reserve(0, 90, 8)
		r.m.store32(r.at, word)
		x.put(t, 0, 1, 1, x.now(), "")
		x.hits(t, 1, Counts{Hits: 1})
		x.hits(t, 90, Counts{})
		x.poll(t, false)
		x.put(t, 0, 1, 1, x.now(), "")
		x.poll(t, false)
		x.hits(t, 1, Counts{Hits: 2, Recorded: 2})
		if s := x.r.Stats(); s.Corrupt != 1 {
			t.Errorf("%#x: %+v", word, s)
		}
	}
}
