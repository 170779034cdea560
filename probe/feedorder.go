package probe

// polled runs after each look of the feed's reader: it gives the sink what no
// older hit of any process can follow.
func (t *feed) polled() {
	given := t.reader.Given()
	if cal := t.reader.Calibration(); cal != nil && given > 0 {
		t.stream.Until(uint64(cal.NS(given)))
	}
	if t.s.order.Many() {
		t.s.giveOrdered(false)
	}
	t.look()
}

// giveOrdered gives the sink the hits that have waited long enough, or all.
func (s *engine) giveOrdered(all bool) {
	s.sinkMu.Lock()
	defer s.sinkMu.Unlock()
	n := 0
	for q := s.order.Next(all); q != nil; q = s.order.Next(all) {
		s.give(q.Probe, &q.Hit)
		s.order.Done(q)
		n++
	}
	if n > 0 {
		s.order.TellOldest()
	}
}

// given is a time stamp before which every hit of the target that was recorded then
// is with the sink (ring.Reader.Settled).
func (t *feed) given() uint64 {
	given := t.reader.Settled()
	if at := t.stream.Queued(); at != 0 {
		return min(at, given)
	}
	return given
}

// tick has other terminals see the hits of a feed whose reader is kept by the sink,
// and be answered.
func (t *feed) tick() {
	t.reader.LookStale()
	t.look()
}
