package engine

// The end of a feed while the session goes on
//
// When the last process of an address space has ended or executed another program, its memory file
// gets no more hits. Then the hits that are still in it are passed to the sink, its counters are
// added to those of the events, and the file is freed. A session may see thousands of processes, so
// it can't keep all files.

// fewFeeds is the number of feeds that are kept until the run ends.
const fewFeeds = 8

// retireFeed ends the feed of a target that is gone, if there are more than fewFeeds. It is called on
// the tracer's thread. When the run is ending it does nothing, because the run's end ends all feeds.
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
