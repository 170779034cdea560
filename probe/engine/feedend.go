package engine

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
func (s *Engine) retireFeed(t *Feed) {
	if s.Stopping || !s.Running || !t.Reading() || len(s.Feeds) <= fewFeeds {
		return
	}
	for i, x := range s.Feeds {
		if x == t {
			s.Feeds = append(s.Feeds[:i:i], s.Feeds[i+1:]...)
			s.Retiring.Go(func() { s.endFeed(t) })
			return
		}
	}
}

func (s *Engine) endFeed(t *Feed) {
	if err := t.Finish(); err != nil {
		s.Logf("read the last hits of process %d: %v", t.Pid, err)
	}
	t.Part()
	t.mu.Lock()
	defer t.mu.Unlock()
	for x, id := range t.waiting {
		x.Ev.waits(t, id, false)
	}
	t.waiting = nil
	for id, p := range t.Ids {
		if p == nil {
			continue
		}
		t.takeRow(p)
		p.Ev.part(p, t.counters.Probe(p.Id))
		t.Ids[id] = nil
	}
	t.Changed()
}
