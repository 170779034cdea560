package probe

// The end of a feed while the session goes on
//
// When the last process of an address space has ended, or has executed another program,
// nothing comes from its memory file any more. What is in it is given to the sink, its
// counters are added to those of its events, and nothing refers to it any longer: a session
// may see thousands of processes come and go.

// fewFeeds are kept until the run is over, in which some is asked of them.
const fewFeeds = 8

// retireFeed has a feed end whose target is over. It is called on the tracer's thread, and
// does nothing once the run is: its end takes care of the feeds that are left.
func (s *engine) retireFeed(t *feed) {
	if s.stopping || !s.running || t.done == nil || len(s.feeds) <= fewFeeds {
		return
	}
	for i, x := range s.feeds {
		if x == t {
			s.feeds = append(s.feeds[:i:i], s.feeds[i+1:]...)
			s.retiring.Go(func() { s.endFeed(t) })
			return
		}
	}
}

func (s *engine) endFeed(t *feed) {
	if err := t.finish(); err != nil {
		s.logf("read the last hits of process %d: %v", t.pid, err)
	}
	s.order.Part(&t.stream)
	t.mu.Lock()
	defer t.mu.Unlock()
	for x, id := range t.waiting {
		x.ev.waits(t, id, false)
	}
	t.waiting = nil
	for id, p := range t.ids {
		if p == nil {
			continue
		}
		t.takeRow(p)
		p.ev.part(p, t.counters.Probe(p.id))
		t.ids[id] = nil
	}
	t.changes.Add(1)
}
