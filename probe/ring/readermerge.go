package ring

// settle gives up the unfinished records that nobody will finish. Each round
// moves over one reservation without length, towards the head that take saw.
func (r *Reader) settle(ln *lane, now int64, start uint64, final bool) {
	for r.settleKnown(ln, now, final) {
		ln.unstick()
		ln.take(now, start, false)
	}
}

// settleKnown gives up the holes whose length is known; stuck reports whether
// the one without is to be given up too.
func (r *Reader) settleKnown(ln *lane, now int64, final bool) (stuck bool) {
	kept := ln.holes[:0]
	for _, h := range ln.holes {
		old := now-h.since >= int64(r.opts.GiveUp)
		if !final && (!old || r.opts.Abandoned == nil || !r.opts.Abandoned(ln.unfinished(h))) {
			kept = append(kept, h)
			continue
		}
		r.stats.Abandoned++
		if h.units == 0 {
			stuck = true
			continue
		}
		r.tally.lost(h.id)
		ln.clear(h.at, h.at+uint64(h.units)*Unit)
	}
	ln.holes = kept
	return stuck
}

// merge passes on the records with time stamps below horizon.
func (r *Reader) merge(horizon uint64, emit func(*Record) error) (int, error) {
	n := 0
	var rec Record
	for i := range r.lanes {
		r.lanes[i].sort()
	}
	for {
		oldest, until := r.oldest(horizon)
		if oldest < 0 {
			break
		}
		ln := &r.lanes[oldest]
		for ln.qh < len(ln.q) && ln.q[ln.qh].tsc <= until {
			e := &ln.q[ln.qh]
			ln.qh++
			rec = Record{
				ID: e.id, TID: e.tid, CPU: oldest % r.l.CPUs, TSC: e.tsc,
				Time: r.cal.NS(e.tsc), Data: ln.buf[e.off : e.off+e.n : e.off+e.n],
			}
			if e.tsc < r.last {
				r.stats.Late++
			} else {
				r.last = e.tsc
			}
			n++
			r.stats.Records++
			r.tally.given.add(e.id)
			if err := emit(&rec); err != nil {
				return n, err
			}
		}
	}
	for i := range r.lanes {
		r.lanes[i].compact()
	}
	if n > 0 && r.opts.Given != nil {
		r.opts.Given()
	}
	return n, nil
}

// oldest returns the ring whose next record is the oldest below horizon, and up to which time
// its records go before those of all others; -1 if there is none.
func (r *Reader) oldest(horizon uint64) (n int, until uint64) {
	n = -1
	best, second := horizon, horizon
	for i := range r.lanes {
		ln := &r.lanes[i]
		if ln.qh == len(ln.q) {
			continue
		}
		t := ln.q[ln.qh].tsc
		switch {
		case t < best || t == best && n < 0:
			n, best, second = i, t, best
		case t < second:
			second = t
		}
	}
	return n, second
}
