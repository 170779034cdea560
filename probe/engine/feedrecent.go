package engine

import "kprobe/probe/threads"

// What hits are asked again and again
//
// Most hits come one behind the other from few probes and few threads, and a reader
// that follows ten million of them a second has no time for locks and maps. So it
// remembers the probes and the threads' names that it met last. It asks anew when
// probes went (feed.changes) or names were noted since then.

// recent belongs to the goroutine that reads.
type recent struct {
	probes [256]recentProbe // by number
	names  *threads.Recent
}

type recentProbe struct {
	p       *Placed // nil: none
	id      uint32
	changes uint64
}

// recentProbe is probe, for who reads.
func (t *Feed) recentProbe(id uint32) *Placed {
	r := &t.recent.probes[id%uint32(len(t.recent.probes))]
	changes := t.changes.Load()
	if r.p == nil || r.id != id || r.changes != changes {
		*r = recentProbe{t.probe(id), id, changes}
	}
	return r.p
}
