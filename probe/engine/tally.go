package engine

import (
	"context"
	"fmt"

	"kprobe/probe/planner"
	"kprobe/symbols"
)

// Code that counts for many detours
//
// If the hits of many probes are only counted, their detours call one piece of code that does
// it (detour.Tally). It is written with the first batch of that size, near their functions, and
// again if threads' areas are known by then. It stays until the session leaves the process.

// layTally maps and writes the tally of a plan, if it is a new one.
func (tg *Target) layTally(ctx context.Context, x *planner.Tally) error {
	if !x.Fresh {
		return nil
	}
	pc, err := tg.mapPlanned(ctx, x.Memory())
	if err != nil {
		return fmt.Errorf("code that counts: %w", err)
	}
	tg.Area.Code.Keep(pc)
	if err := tg.Proc.WriteMemory(x.Code.Code, symbols.Addr(x.Code.Base)); err != nil {
		return fmt.Errorf("write code that counts: %w", err)
	}
	if err := tg.putAsks(x.Code.Asks); err != nil {
		return err
	}
	tg.Area.Tallies = append(tg.Area.Tallies, x.Code)
	return nil
}
