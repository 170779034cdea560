package probe

// What hits are asked again and again
//
// Most hits come one behind the other from few probes and few threads, and a reader
// that follows ten million of them a second has no time for locks and maps. So it
// remembers the probes and the threads' names that it met last. It asks anew when
// probes went (feed.changes) or names were noted (feed.named) since then.

// recent belongs to the goroutine that reads.
type recent struct {
	probes [256]recentProbe // by number
	comms  [64]recentComm   // by thread
}

type recentProbe struct {
	p       *placed // nil: none
	id      uint32
	changes uint64
}

type recentComm struct {
	tid   uint32 // 0: none
	name  string
	from  uint64 // the time of the hit for which the name was asked
	named uint64
}

// recentProbe is probe, for who reads.
func (t *feed) recentProbe(id uint32) *placed {
	r := &t.recent.probes[id%uint32(len(t.recent.probes))]
	changes := t.changes.Load()
	if r.p == nil || r.id != id || r.changes != changes {
		*r = recentProbe{t.probe(id), id, changes}
	}
	return r.p
}

// commAt is comm for a hit of a time, for who reads: a name is believed for half of
// commAge.
func (t *feed) commAt(tid uint32, time uint64) string {
	r := &t.recent.comms[tid%uint32(len(t.recent.comms))]
	named := t.named.Load()
	if tid == 0 || r.tid != tid || r.named != named || time-r.from >= uint64(commAge/2) {
		*r = recentComm{tid, t.comm(tid), time, named}
	}
	return r.name
}
