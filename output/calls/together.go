package calls

// Calls that return together
//
// A function that has jumped on to another returns when that one does, by the same instruction. The
// hits of such returns may come in any order. A return of an outer call is told of only when the calls
// within it have returned, too; or, if another hit comes first, then: they were left.

// together reports whether the open calls from number n on have the same stack, and are several.
func (th *thread) together(n int) bool {
	last := len(th.open) - 1
	if n == last || th.open[n].sp == 0 {
		return false
	}
	// Within a call the stack never lies above its own, so it is enough to look at the innermost.
	return th.open[last].sp == th.open[n].sp
}

// endTogether ends the innermost calls, as far as they are over.
func (t *Tracker) endTogether(th *thread) error {
	for n := len(th.open); n > 0 && th.open[n-1].over; n-- {
		if err := t.end(th, th.open[n-1], th.open[n-1].Leave); err != nil {
			return err
		}
	}
	if len(th.open) < th.over {
		th.over = 0
	}
	return nil
}

// endOver ends all calls that are over. Those within them were left.
func (t *Tracker) endOver(th *thread) error {
	for th.over > 0 {
		n := len(th.open)
		if !th.open[n-1].over {
			if err := t.drop(th, n-1, th.open[th.over-1].Leave); err != nil {
				return err
			}
		}
		if err := t.endTogether(th); err != nil {
			return err
		}
	}
	return nil
}
