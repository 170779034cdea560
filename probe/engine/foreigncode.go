package engine

import "kprobe/symbols"

// dropOccupied gives up jumps where something else has patched what they would
// cover: the probe's own instruction, which was proved, can still be a
// breakpoint. It notes the bytes that the others replace. The error is that of who
// should give up.
func (o *planner) dropOccupied(patches []*Patch, rest []PatchRequest) ([]*Patch, []PatchRequest, error) {
	kept := patches[:0]
	for i, p := range patches {
		if err := o.ground.pause("comparing the text", i, len(patches)); err != nil {
			return nil, nil, err
		}
		err := o.ground.before(p)
		if err == nil {
			kept = append(kept, p)
			continue
		}
		rest = o.giveUp(p, rest, "its jump would cover "+err.Error())
	}
	return kept, rest, nil
}

// covered compares the instructions that a patch displaces, and the bytes
// behind them that are part of its jump, with the file.
func (tg *Target) covered(p *Patch) error {
	at := symbols.Addr(p.Plan.At)
	if err := tg.pristine(at, p.Plan.Displaced); err != nil || p.Plan.Lock <= p.Plan.End() {
		return err
	}
	m := tg.Space.ModuleAt(at)
	if m == nil || m.File == nil {
		return errNoFile
	}
	end := symbols.Addr(p.Plan.End())
	b, err := m.File.Text(m.Vaddr(end), int(p.Plan.Lock-p.Plan.End()))
	if err != nil {
		return err
	}
	return tg.pristine(end, b)
}
