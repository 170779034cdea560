package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/probe/assess"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/symbols"
)

// How a plan is built
//
// Everything that a plan needs is put into the target's memory, where nothing leads yet: code
// that detours share, the instances of return probes, detours, and the copies of instructions
// that will be breakpoints. The fallback handler's table and handlers get the corresponding
// entries. No byte of the text changes. After an error, memory may be left behind, which the
// next plan uses, or which is unmapped with the last of its kind.

// batch is a change as it was planned. It stays as it is.
type batch struct {
	*planner.Plan
	patches []*Patch         // its jumps
	out     *outgoing        // what makes way
	drop    map[*Placed]bool // the probes that go
	fresh   []*Placed        // those that come
	own     []own            // breakpoints of kprobe's own
}

// built is a plan whose code is there.
type built struct {
	*batch
	sites []*Site // of the breakpoints that come
}

// places are where breakpoints are to be.
func (b *batch) places() []*assess.Place {
	out := make([]*assess.Place, 0, len(b.Traps)+len(b.own))
	for _, w := range b.Traps {
		out = append(out, w.Place)
	}
	for i := range b.own {
		out = append(out, &b.own[i].Place)
	}
	return out
}

// build puts what a plan needs into the target. The error is *takenError if the
// program was there first.
func (tg *Target) build(ctx context.Context, b *batch) (*built, error) {
	out := &built{batch: b}
	if err := tg.layAll(ctx, out); err != nil {
		tg.discardAll(out.sites)
		return nil, err
	}
	return out, nil
}

func (tg *Target) layAll(ctx context.Context, b *built) error {
	if tg.text != b.Text {
		return errText
	}
	if b.Common != nil {
		if err := tg.layShared(ctx, b.Common); err != nil {
			return err
		}
	}
	if b.Tally != nil {
		if err := tg.layTally(ctx, b.Tally); err != nil {
			return err
		}
	}
	for _, r := range b.Memory {
		pc, err := tg.mapPlanned(ctx, r)
		if err != nil {
			return fmt.Errorf("map memory for detours in the target: %w", err)
		}
		pc.Used, pc.Detours = pc.Size, true
		tg.Area.Code.Put(pc)
	}
	if b.Pools != nil {
		if err := tg.layPools(ctx, b.Pools, b.patches); err != nil {
			return err
		}
	}
	for _, p := range b.patches {
		if err := tg.answer(); err != nil {
			return err
		}
		if err := tg.writeStages(p); err != nil {
			return err
		}
	}
	if err := tg.layTraps(ctx, b); err != nil {
		return err
	}
	if len(b.patches) > 0 {
		return tg.catchFor(ctx, b.patches)
	}
	return nil
}

// mapPlanned maps memory where a plan wants it.
func (tg *Target) mapPlanned(ctx context.Context, r plan.Range) (*memory.Arena, error) {
	pc, err := tg.Area.Code.MapAt(ctx, symbols.Addr(r.Lo), r.Hi-r.Lo)
	if errors.Is(err, unix.EEXIST) {
		return nil, &takenError{r}
	}
	return pc, err
}

func (tg *Target) writeStages(p *Patch) error {
	if p.island != nil {
		if err := tg.writeStages(p.island); err != nil {
			return err
		}
	}
	if len(p.Stages) == 0 {
		return nil
	}
	base := p.Stages[0].Base
	last := p.Stages[len(p.Stages)-1]
	text := make([]byte, int(last.Base-base)+last.Size)
	for i := range text {
		text[i] = breakpoint
	}
	for _, s := range p.Stages {
		copy(text[s.Base-base:], s.Text)
		s.Text = nil
		if s.Trampolines != nil {
			tg.Feed.Trampolines.Hide(s.Base, s.Base+symbols.Addr(s.Size))
		}
	}
	if err := tg.Proc.WriteMemory(text, base); err != nil {
		return fmt.Errorf("write a detour: %w", err)
	}
	return nil
}

// layTraps makes the sites of a plan's breakpoints and writes their copies.
func (tg *Target) layTraps(ctx context.Context, b *built) error {
	places := b.places()
	if len(places) == 0 {
		return nil
	}
	if err := tg.reserve(ctx, places); err != nil {
		return err
	}
	for _, w := range places {
		if tg.Sites[w.Site.Addr] != nil {
			continue
		}
		st, err := tg.lay(ctx, w)
		if err != nil {
			return err
		}
		b.sites = append(b.sites, st)
	}
	if err := tg.catchSites(ctx, b.sites); err != nil {
		return err
	}
	return tg.takeTraps(ctx)
}

// takeTraps sees that the target's threads take SIGTRAP.
func (tg *Target) takeTraps(ctx context.Context) error {
	if tg.openTraps {
		return nil
	}
	if err := tg.Proc.OpenTraps(ctx); err != nil {
		return err
	}
	tg.openTraps = true
	return nil
}

// discardAll takes the sites of a change that has failed out again.
func (tg *Target) discardAll(list []*Site) {
	for _, st := range slices.Backward(list) {
		tg.discardUnused(st)
	}
}
