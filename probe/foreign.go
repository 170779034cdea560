package probe

import (
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// unpatched gives up jumps where something else has patched what they would
// cover: the probe's own instruction, which was proved, can still be a
// breakpoint. It notes the bytes that the others replace.
func (tg *target) unpatched(patches []*patch, ws, rest []want) ([]*patch, []want) {
	given := map[*placed]bool{}
	kept := patches[:0]
	for _, p := range patches {
		err := tg.readBefore(p)
		if err == nil {
			kept = append(kept, p)
			continue
		}
		for _, x := range p.probes {
			given[x] = true
			x.tactic, x.why = plan.Breakpoint, "its jump would cover "+err.Error()
		}
	}
	for _, w := range ws {
		if w.p != nil && given[w.p] {
			rest = append(rest, w)
		}
	}
	return kept, rest
}

// covered compares the instructions that a patch displaces with the file.
func (tg *target) covered(p *patch) error {
	return tg.pristine(symbols.Addr(p.plan.At), p.plan.Displaced)
}
