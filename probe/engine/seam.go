package engine

// The seam for tests
//
// Functions that only tests of package probe use: to examine a target, and to change it without
// the engine's knowledge.

// NoMoreRenewals prevents that the target's jumps are built again (renew.go).
func (tg *Target) NoMoreRenewals() { tg.Renewal.tries = renewTries }

// allAgain is a change that arms all probes of a target anew.
func allAgain(tg *Target) *changeset {
	f := tg.newFinder()
	for p := range tg.Placed {
		f.probe(p)
		f.out.stay[p] = true
	}
	return &changeset{out: f.out}
}

// SeePlan lists the plan by which all probes of the target would be armed anew: its jumps in order
// of address, then its breakpoints. Nothing is changed.
func (tg *Target) SeePlan() ([]string, error) {
	c := allAgain(tg)
	b, err := tg.plan(c, c.requests(tg), nil)
	if err != nil {
		return nil, err
	}
	return b.Lines(), nil
}
