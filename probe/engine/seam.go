package engine

// The seam for tests
//
// What tests of package probe see of a target beyond what the face uses, and how they
// change it behind the engine's back. The face uses none of it.

// NoMoreRenewals has the jumps of a program that kprobe has started stay as they are.
func (tg *Target) NoMoreRenewals() { tg.Renewal.tries = renewTries }

// allAgain is a change in which all probes of a target are armed anew.
func allAgain(tg *Target) *changeset {
	f := tg.newFinder()
	for p := range tg.Placed {
		f.probe(p)
		f.out.stay[p] = true
	}
	return &changeset{out: f.out}
}

// SeePlan tells the plan by which all probes of the target would be armed anew: its jumps in
// order of address, and its breakpoints.
func (tg *Target) SeePlan() ([]string, error) {
	c := allAgain(tg)
	b, err := tg.plan(c, c.requests(tg))
	if err != nil {
		return nil, err
	}
	return b.Lines(), nil
}
