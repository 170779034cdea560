package probe

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/plan"
	"kprobe/symbols"
)

// lay maps the memory of the detours and writes them. Patches whose memory
// can't be had are given up for breakpoints.
func (o *optimizer) lay(ctx context.Context, space *plan.Space, list []*patch, rest *[]want) ([]*patch, error) {
	tg := o.tg
	var refused []plan.Range
	for _, r := range space.Fresh() {
		size := r.Hi - r.Lo
		pc, err := tg.area.code.mapAt(ctx, symbols.Addr(r.Lo), size)
		if errors.Is(err, unix.EEXIST) {
			refused = append(refused, r)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("map memory for detours in the target: %w", err)
		}
		pc.used, pc.detours = size, true
		tg.area.code.pieces = append(tg.area.code.pieces, pc)
	}
	kept := list[:0]
	for _, p := range list {
		lost := false
		for _, r := range refused {
			lost = lost || p.plan.Detour >= r.Lo && p.plan.Detour < r.Hi
			lost = lost || p.hole != nil && p.hole.plan.Detour >= r.Lo && p.hole.plan.Detour < r.Hi
		}
		if !lost {
			if err := o.writeStages(p); err != nil {
				return nil, err
			}
			kept = append(kept, p)
			continue
		}
		*rest = p.giveUp(*rest, "the program mapped memory where its detour was to lie")
	}
	return kept, nil
}

func (o *optimizer) writeStages(p *patch) error {
	if p.hole != nil {
		if err := o.writeStages(p.hole); err != nil {
			return err
		}
	}
	if len(p.stages) == 0 {
		return nil
	}
	base := p.stages[0].base
	last := p.stages[len(p.stages)-1]
	text := make([]byte, int(last.base-base)+last.size)
	for i := range text {
		text[i] = breakpoint
	}
	for _, s := range p.stages {
		copy(text[s.base-base:], s.text)
		s.text = nil
	}
	if err := o.tg.proc.WriteMemory(text, base); err != nil {
		return fmt.Errorf("write a detour: %w", err)
	}
	return nil
}
