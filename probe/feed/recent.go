package feed

import "kprobe/probe/threads"

// What hits are asked again and again
//
// Most hits come one behind the other from few probes and few threads, and a reader
// that follows ten million of them a second has no time for locks and maps. So it
// remembers the probes and the threads' names that it met last. It asks anew when
// probes went (Reader.Changed) or names were noted since then.

// recent belongs to the goroutine that reads.
type recent struct {
	probes [256]recentProbe // by number
	names  *threads.Recent
}

type recentProbe struct {
	p       *Probe // nil: none
	id      uint32
	changes uint64
}

// recentProbe is the probe of a number.
func (t *Reader) recentProbe(id uint32) *Probe {
	r := &t.recent.probes[id%uint32(len(t.recent.probes))]
	changes := t.changes.Load()
	if r.p == nil || r.id != id || r.changes != changes {
		*r = recentProbe{t.from.Probe(id), id, changes}
	}
	return r.p
}
