package feed

import "kprobe/probe/threads"

// Caches for hits
//
// Most consecutive hits are of few probes and few threads. A reader that follows ten million of them a
// second has no time for locks and maps. So it caches the probes and the threads' names that it has
// used last. It looks them up again after probes were removed (Reader.Changed) or names were noted.

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

// recentProbe finds a probe by its number, by the cache; nil if there is none.
func (t *Reader) recentProbe(id uint32) *Probe {
	r := &t.recent.probes[id%uint32(len(t.recent.probes))]
	changes := t.changes.Load()
	if r.p == nil || r.id != id || r.changes != changes {
		*r = recentProbe{t.from.Probe(id), id, changes}
	}
	return r.p
}
