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
// Everything that a plan needs is written to the target's memory, where nothing leads to it yet:
// code that detours share, the instances of return probes, detours, and the copies of instructions
// that will be breakpoints. The fallback handler's table gets entries for them, and the program's
// signals get fallback handlers. No byte of the text changes. An error may leave memory mapped: the
// next plan uses it, or it is unmapped together with other memory of its kind.

// batch is a planned change. It is never modified.
type batch struct {
	*planner.Plan
	patches []*Patch         // the plan's jumps
	out     *outgoing        // the patches that give way
	drop    map[*Placed]bool // probes to be removed
	fresh   []*Placed        // new probes
	own     []own            // breakpoints of kprobe's own
}

// built is a batch whose code is in the target.
type built struct {
	*batch
	sites []*Site // sites of the new breakpoints
}

// places are the places of all breakpoints in the plan, and of kprobe's own.
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

// build writes a plan's code to the target. The error is a *takenError if the program has mapped
// memory where the plan wanted to, and errText if the text has changed since the plan was made.
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
	if err := tg.writeDetours(b.patches, b.Memory); err != nil {
		return err
	}
	if err := tg.layTraps(ctx, b); err != nil {
		return err
	}
	if len(b.patches) > 0 {
		return tg.catchFor(ctx, b.patches)
	}
	return nil
}

// mapPlanned maps a range for a plan, unless it is held. The error is a *takenError if something is mapped there.
func (tg *Target) mapPlanned(ctx context.Context, r plan.Range) (*memory.Arena, error) {
	if held := tg.holding.use(r); held != nil {
		return held, nil
	}
	pc, err := tg.Area.Code.MapAt(ctx, symbols.Addr(r.Lo), r.Hi-r.Lo)
	if errors.Is(err, unix.EEXIST) {
		return nil, &takenError{r}
	}
	return pc, err
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

// takeTraps unblocks SIGTRAP in the target's threads, before the first breakpoint.
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

// discardAll removes the sites of a failed change.
func (tg *Target) discardAll(list []*Site) {
	for _, st := range slices.Backward(list) {
		tg.discardUnused(st)
	}
}
