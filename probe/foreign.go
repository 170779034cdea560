package probe

import "kprobe/symbols"

// unpatched gives up jumps where something else has patched what they would
// cover: the probe's own instruction, which was proved, can still be a
// breakpoint. It notes the bytes that the others replace.
func (tg *target) unpatched(patches []*patch, rest []want) ([]*patch, []want) {
	kept := patches[:0]
	for _, p := range patches {
		err := tg.readBefore(p)
		if err == nil {
			kept = append(kept, p)
			continue
		}
		rest = p.giveUp(rest, "its jump would cover "+err.Error())
	}
	return kept, rest
}

// covered compares the instructions that a patch displaces with the file.
func (tg *target) covered(p *patch) error {
	return tg.pristine(symbols.Addr(p.plan.At), p.plan.Displaced)
}
