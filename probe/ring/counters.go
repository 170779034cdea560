package ring

// Counts are the counters of one probe, summed over the CPUs. When the target
// stands still, or is gone, and the rings are empty
//
//	Hits = Recorded + Filtered + Lost
//
// and in a live target Hits is ahead by what is in the rings (Pending). Of a
// probe with FlagCountOnly Recorded is 0.
type Counts struct {
	Hits     uint64 // hits of the probe while it was enabled
	Filtered uint64 // of them, the filter said no
	Lost     uint64 // of them, the ring was full or the record was never finished
	Missed   uint64 // nmissed; not in Hits
	Recorded uint64 // of Hits, read
}

// Pending is how many hits are neither recorded nor filtered nor lost yet. It
// is never below 0, though counters are read one after another.
func (c Counts) Pending() uint64 {
	done := c.Recorded + c.Filtered + c.Lost
	if done > c.Hits {
		return 0
	}
	return c.Hits - done
}

// Add sums counters, as those of an event with several places.
func (c *Counts) Add(d Counts) {
	c.Hits += d.Hits
	c.Filtered += d.Filtered
	c.Lost += d.Lost
	c.Missed += d.Missed
	c.Recorded += d.Recorded
}

// Counters reads and resets the counters of a mapped file. It may be used
// concurrently.
type Counters struct {
	l *Layout
	m mem
}

// NewCounters reads the counters of the file mapped at b, at least up to the
// Code section.
func NewCounters(b []byte, l *Layout) (*Counters, error) {
	m, err := newMem(b, l)
	if err != nil {
		return nil, err
	}
	return &Counters{l, m}, nil
}

// Probe gives a probe's counters; an id out of range has none.
func (c *Counters) Probe(id uint32) Counts {
	var n Counts
	if int64(id) > int64(c.l.MaxProbes) {
		return n
	}
	// What becomes of a hit is counted after the hit: read in the opposite
	// order, the parts are never more than the whole.
	at := func(cpu, counter int) uint64 { return c.m.load64(c.l.Counter(cpu, id, counter)) }
	n.Recorded = at(c.l.CPUs, CounterHits)
	n.Lost = at(c.l.CPUs, CounterLost)
	for cpu := range c.l.CPUs {
		n.Lost += at(cpu, CounterLost)
		n.Filtered += at(cpu, CounterFiltered)
		n.Missed += at(cpu, CounterMissed)
	}
	n.Hits = n.Filtered
	for cpu := range c.l.CPUs {
		n.Hits += at(cpu, CounterHits)
	}
	return n
}

// CPU gives the part of a probe's counters that one CPU counted.
func (c *Counters) CPU(cpu int, id uint32) Counts {
	if cpu < 0 || cpu >= c.l.CPUs || int64(id) > int64(c.l.MaxProbes) {
		return Counts{}
	}
	at := func(counter int) uint64 { return c.m.load64(c.l.Counter(cpu, id, counter)) }
	return Counts{
		Lost: at(CounterLost), Filtered: at(CounterFiltered), Missed: at(CounterMissed), Hits: at(CounterHits) + at(CounterFiltered),
	}
}

// Clear zeroes the counters of an id that is to be used anew. No detour may
// count under it any more.
func (c *Counters) Clear(id uint32) {
	if int64(id) > int64(c.l.MaxProbes) {
		return
	}
	for cpu := range c.l.CPUs + 1 {
		for off := int64(0); off < CounterSize; off += 8 {
			c.m.store64(c.l.Counter(cpu, id, 0)+off, 0)
		}
	}
}
