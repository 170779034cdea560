package memory

import "kprobe/probe/ring"

// Counters are those of a file's probes. Whoever reads thousands of them doesn't hold their pages.
type Counters struct {
	*ring.Counters
	file  *File
	areas *Seldom
}

// Counters gives those of the file.
func (m *File) Counters() (*Counters, error) {
	all, err := ring.NewCounters(m.Mem, m.Layout)
	if err != nil {
		return nil, err
	}
	return &Counters{all, m, m.Seldom(m.Layout.PerCPU, m.Layout.Areas()+1)}, nil
}

// Probe is ring.Counters.Probe.
func (c *Counters) Probe(id uint32) ring.Counts {
	defer c.touched(id)
	return c.Counters.Probe(id)
}

// Clear is ring.Counters.Clear.
func (c *Counters) Clear(id uint32) {
	defer c.touched(id)
	c.Counters.Clear(id)
}

func (c *Counters) touched(id uint32) {
	c.areas.Touched(c.file.Layout.Counter(0, id, 0), ring.CounterSize)
}
