package ring

// Counts are the counters of one probe, summed over the CPUs. When all records are read,
//
//	Hits = Recorded + Counted + Filtered + Lost + Limited
//
// Before that, Hits is ahead by the records that were seen in the rings and aren't passed on
// yet (Pending). For a probe with FlagCountOnly Recorded is 0.
//
// The target doesn't count Hits: it is the sum of what became of the hits. If a thread is
// killed between a probe's place and the first word of its record, it has not hit.
type Counts struct {
	Hits     uint64 // hits of the probe while it was enabled, up to the reader's last look
	Filtered uint64 // of them, the filter said no
	Lost     uint64 // of them, the ring was full or the record was never finished
	// Unfinished are those of Lost whose record was begun and never finished: the thread
	// was killed, or jumped out of it. The others found the ring full.
	Unfinished uint64
	Limited    uint64 // of Hits, the event had as many as it may have in that second
	Missed     uint64 // nmissed; not in Hits
	Recorded   uint64 // of Hits, read
	Counted    uint64 // of Hits, counted without a record; not in Recorded
}

// Pending is how many hits are not yet recorded, counted, filtered, limited or lost. It is
// never below 0, although counters are read one after another.
func (c Counts) Pending() uint64 {
	done := c.Recorded + c.Filtered + c.Lost + c.Limited + c.Counted
	if done > c.Hits {
		return 0
	}
	return c.Hits - done
}

// Add adds counters, for an event with several places.
func (c *Counts) Add(d Counts) {
	c.Hits += d.Hits
	c.Filtered += d.Filtered
	c.Lost += d.Lost
	c.Unfinished += d.Unfinished
	c.Limited += d.Limited
	c.Missed += d.Missed
	c.Recorded += d.Recorded
	c.Counted += d.Counted
}

// Counters reads and resets the counters of a mapped file. It may be used
// concurrently.
type Counters struct {
	l *Layout
	m mem
}

// NewCounters reads the counters of the file that is mapped at b, at least up to the Code
// section.
func NewCounters(b []byte, l *Layout) (*Counters, error) {
	m, err := newMem(b, l)
	if err != nil {
		return nil, err
	}
	return &Counters{l, m}, nil
}

// Probe returns a probe's counters. An id out of range has none.
func (c *Counters) Probe(id uint32) Counts {
	var n Counts
	if int64(id) > int64(c.l.MaxProbes) {
		return n
	}
	for cpu := c.l.Areas(); cpu >= 0; cpu-- {
		n.addArea(c.l, cpu, func(off int) uint64 { return c.m.load64(c.l.Counter(cpu, id, off)) }, c.elsewhere(cpu, id))
	}
	return n
}

// elsewhere is what is counted for CounterHits on a CPU outside of the probe's slot: by the
// tally, and as records were overwritten.
func (c *Counters) elsewhere(cpu int, id uint32) uint64 {
	if cpu == c.l.Areas() {
		return 0
	}
	n := c.m.load64(c.l.tallied(cpu, id))
	if c.l.Overwrite {
		n += c.m.load64(c.l.taken(cpu, id)) + c.m.load64(c.l.taken(cpu+c.l.Areas(), id))
	}
	return n
}

// addArea adds the counters of a CPU's area, or of the reader's; at gives a
// counter of the probe's slot there, elsewhere is what is counted beside it.
func (n *Counts) addArea(l *Layout, cpu int, at func(off int) uint64, elsewhere uint64) {
	if cpu == l.Areas() {
		// A record is seen before it is given: read in the opposite order, the
		// parts are never more than the whole.
		n.Recorded += at(ReaderGiven)
		lost := at(ReaderLost)
		n.Lost += lost
		n.Unfinished += lost
		n.Hits += lost + at(ReaderSeen)
		return
	}
	filtered, lost := at(CounterFiltered)+at(CounterFiltered+CounterSeq), at(CounterLost)
	n.Filtered += filtered
	n.Lost += lost
	limited := at(CounterLimited)
	n.Limited += limited
	n.Missed += at(CounterMissed)
	counted := at(CounterHits) + at(CounterHits+CounterSeq) + elsewhere
	n.Counted += counted
	n.Hits += filtered + lost + limited + counted
}

// CPU returns the part of a probe's counters that one area of a CPU has: hits that are not
// records.
func (c *Counters) CPU(cpu int, id uint32) Counts {
	var n Counts
	if cpu < 0 || cpu >= c.l.Areas() || int64(id) > int64(c.l.MaxProbes) {
		return n
	}
	n.addArea(c.l, cpu, func(off int) uint64 { return c.m.load64(c.l.Counter(cpu, id, off)) }, c.elsewhere(cpu, id))
	return n
}

// Clear zeroes the counters of an id that is about to be reused. No detour may count under it
// any more.
func (c *Counters) Clear(id uint32) {
	if int64(id) > int64(c.l.MaxProbes) {
		return
	}
	for cpu := range c.l.Areas() + 1 {
		for off := int64(0); off < CounterSize; off += 8 {
			c.m.store64(c.l.Counter(cpu, id, 0)+off, 0)
		}
		if cpu == c.l.Areas() {
			break
		}
		if at := c.l.tallied(cpu, id); c.m.load64(at) != 0 {
			c.m.store64(at, 0)
		}
		if c.l.Overwrite { // up to where they were counted stays
			c.m.store64(c.l.taken(cpu, id), 0)
			c.m.store64(c.l.taken(cpu+c.l.Areas(), id), 0)
		}
	}
}
