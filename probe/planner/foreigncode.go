package planner

// dropOccupied gives up jumps where something else has patched what they would
// cover: the probe's own instruction, which was proved, can still be a
// breakpoint. It notes the bytes that the others replace. The error is that of who
// should give up.
func (o *planner) dropOccupied(patches []*Patch, rest []Request) ([]*Patch, []Request, error) {
	kept := patches[:0]
	for i, p := range patches {
		if err := o.ground.Pause("comparing the text", i, len(patches)); err != nil {
			return nil, nil, err
		}
		err := o.findBefore(p)
		if err == nil {
			kept = append(kept, p)
			continue
		}
		rest = o.giveUp(p, rest, "its jump would cover "+err.Error())
	}
	return kept, rest, nil
}

// findBefore notes the bytes that a jump replaces, and its island before.
func (o *planner) findBefore(p *Patch) (err error) {
	if p.Island != nil {
		if err := o.findBefore(p.Island); err != nil {
			return err
		}
	}
	p.Before, err = o.ground.Before(p.Plan)
	return err
}
