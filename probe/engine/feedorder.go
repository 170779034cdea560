package engine

// polled runs after each look of the feed's reader: it gives the sink what no
// older hit of any process can follow.
func (t *Feed) polled() {
	given := t.reader.Given()
	if cal := t.reader.Calibration(); cal != nil && given > 0 {
		t.stream.Until(uint64(cal.NS(given)))
	}
	if t.engine.Order.Many() {
		t.engine.GiveOrdered(false)
	}
	t.look()
}

// GiveOrdered gives the sink the hits that have waited long enough, or all.
func (s *Engine) GiveOrdered(all bool) {
	s.SinkMu.Lock()
	defer s.SinkMu.Unlock()
	n := 0
	for q := s.Order.Next(all); q != nil; q = s.Order.Next(all) {
		s.give(q.Probe, &q.Hit)
		s.Order.Done(q)
		n++
	}
	if n > 0 {
		s.Order.TellOldest()
	}
}

// given is a time stamp before which every hit of the target that was recorded then
// is with the sink (ring.Reader.Settled).
func (t *Feed) given() uint64 {
	given := t.reader.Settled()
	if at := t.stream.Queued(); at != 0 {
		return min(at, given)
	}
	return given
}

// tick has other terminals see the hits of a feed whose reader is kept by the sink,
// and be answered.
func (t *Feed) tick() {
	t.reader.LookStale()
	t.look()
}
