package ring

// tally counts what becomes of records, by probe, and brings it to the
// reader's area of the file once per look.
type tally struct {
	m      mem
	l      *Layout
	counts []uint32 // by id, since the last publish
	dirty  []uint32 // ids whose count isn't 0
}

func newTally(m mem, l *Layout) tally {
	return tally{m: m, l: l, counts: make([]uint32, l.MaxProbes+1)}
}

func (t *tally) recorded(id uint32) {
	if t.counts[id] == 0 {
		t.dirty = append(t.dirty, id)
	}
	t.counts[id]++
}

func (t *tally) lost(id uint32) { t.m.add64(t.l.Counter(t.l.CPUs, id, CounterLost), 1) }

func (t *tally) publish() {
	for _, id := range t.dirty {
		t.m.add64(t.l.Counter(t.l.CPUs, id, CounterHits), uint64(t.counts[id]))
		t.counts[id] = 0
	}
	t.dirty = t.dirty[:0]
}
