package planner

// dropOccupied gives up jumps that would cover bytes which something else has patched. The probe's own
// instruction was proved, so it can still have a breakpoint. For the other jumps it notes the bytes
// that they replace. The error is that of Ground.Pause.
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

// findBefore notes the bytes that a jump and its island replace.
func (o *planner) findBefore(p *Patch) (err error) {
	if p.Island != nil {
		if err := o.findBefore(p.Island); err != nil {
			return err
		}
	}
	outside, err := o.ground.Before(&p.Plan)
	p.Plan.Replaces(outside)
	return err
}
