package ring

import "slices"

// tally counts the records that a reader finds and gives, by probe, and brings
// the counts to the reader's area of the file.
type tally struct {
	m     mem
	l     *Layout
	seen  count // records copied out since the last publish
	given count // since the last publish
	ahead count // records in the rings that ReaderSeen has already
}

// count is a number for each probe, with the probes whose number isn't 0.
type count struct {
	n     []uint32
	dirty []uint32
}

func (c *count) add(id uint32) { c.set(id, c.n[id]+1) }

func (c *count) set(id, n uint32) {
	if c.n[id] == 0 {
		c.dirty = append(c.dirty, id)
	}
	c.n[id] = n
}

// reset makes all numbers 0 and calls f with what they were.
func (c *count) reset(f func(id, n uint32)) {
	for _, id := range c.dirty {
		n := c.n[id]
		c.n[id] = 0
		f(id, n)
	}
	c.dirty = c.dirty[:0]
}

func newTally(m mem, l *Layout) tally {
	n := func() count { return count{n: make([]uint32, l.MaxProbes+1)} }
	return tally{m: m, l: l, seen: n(), given: n(), ahead: n()}
}

func (t *tally) lost(id uint32) { t.m.add64(t.l.Counter(t.l.Areas(), id, ReaderLost), 1) }

// look sets ReaderSeen to its value at the last publish plus the records in the rings, for each
// of which records calls add. It never decreases.
func (t *tally) look(records func(add func(id uint32))) {
	records(t.seen.add) // nothing is in it between two publishes
	t.seen.reset(func(id, n uint32) {
		if before := t.ahead.n[id]; n > before {
			t.ahead.set(id, n)
			t.m.add64(t.l.Counter(t.l.Areas(), id, ReaderSeen), uint64(n-before))
		}
	})
}

// publishSeen brings the records copied out to the file. Those that look has
// counted in the rings are among them, or, if there is more in the rings, may
// still be there.
func (t *tally) publishSeen(more bool) {
	t.seen.reset(func(id, n uint32) {
		before := min(n, t.ahead.n[id])
		t.ahead.n[id] -= before
		t.m.add64(t.l.Counter(t.l.Areas(), id, ReaderSeen), uint64(n-before))
	})
	if !more {
		t.ahead.reset(func(uint32, uint32) {})
		return
	}
	t.ahead.dirty = slices.DeleteFunc(t.ahead.dirty, func(id uint32) bool { return t.ahead.n[id] == 0 })
}

// publishGiven brings the records given on to the file.
func (t *tally) publishGiven() {
	t.given.reset(func(id, n uint32) {
		t.m.add64(t.l.Counter(t.l.Areas(), id, ReaderGiven), uint64(n))
	})
}

// giveSeen counts the records copied out since the last publish as given, too.
func (t *tally) giveSeen() {
	for _, id := range t.seen.dirty {
		t.given.set(id, t.given.n[id]+t.seen.n[id])
	}
}
