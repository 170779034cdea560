package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"kprobe/probe/planner"
	"kprobe/probe/tracee"
)

// How thousands of jumps are written
//
// One stop for all of them would be noticeable. If nothing makes way for them, they don't
// depend on each other, and are written in portions, with all threads stopped for each. Exits
// are written before the code that notes calls, so that no call is noted whose return nobody
// sees. Breakpoints come last, because their threads would have to wait for the tracer
// meanwhile. If one portion fails, all are removed again.

const (
	// portionTime is how long threads are stopped for a portion, about.
	portionTime = 10 * time.Millisecond
	// portionStep is how many jumps are written between two looks at the clock.
	portionStep = 512
)

// inPortions reports whether the jumps that come may be written in portions.
func (x *exchanged) inPortions() bool {
	return len(x.patches) > portionStep && len(x.calls) == 0 && !slices.ContainsFunc(x.patches, func(p *Patch) bool {
		return slices.ContainsFunc(p.Wants, func(w planner.Request) bool { return w.P.GoABI && w.Kind != planner.Entry })
	})
}

// armInPortions writes jumps that are in the journal. On an error they are taken out
// again.
func (tg *Target) armInPortions(ctx context.Context, x *exchanged) error {
	todo := slices.Clone(x.patches)
	slices.SortStableFunc(todo, func(a, b *Patch) int { return a.notes() - b.notes() })
	all, stops, began := len(todo), 0, time.Now()
	var longest time.Duration
	for len(todo) > 0 {
		tg.Engine.progress("writing jumps", all-len(todo), all)
		stop := time.Now()
		err := tg.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			for from := time.Now(); len(todo) > 0 && time.Since(from) < portionTime; {
				part := todo[:min(portionStep, len(todo))]
				if err := tg.lateUnder(part); err != nil {
					return err
				}
				if err := tg.ArmStopped(part, stopped); err != nil {
					return err
				}
				todo = todo[len(part):]
			}
			return nil
		})
		stops, longest = stops+1, max(longest, time.Since(stop))
		if err = tracee.IgnoreLate(err); err != nil {
			return errors.Join(err, tg.disarmAll(ctx, x))
		}
	}
	tg.Engine.Logf("process %d: %d jumps were written in %v, in %d stops of %v at most", tg.Proc.PID(), all, time.Since(began).Round(time.Millisecond), stops, longest.Round(time.Millisecond))
	return nil
}

// disarmAll takes the jumps of a plan out again, whichever are in the text.
func (tg *Target) disarmAll(ctx context.Context, x *exchanged) error {
	err := tg.WithStopped(ctx, func(stopped []*tracee.Thread) error { return tg.RestorePatches(x.patches, stopped) })
	if err = tracee.IgnoreLate(err); err != nil {
		tg.lose(x)
	}
	return err
}

// notes says when a jump's turn is: exits first, what notes calls last.
func (p *Patch) notes() int {
	exits, others := 0, 0
	for _, w := range p.Wants {
		if w.Kind == planner.Exit || w.Kind == planner.LoneExit {
			exits++
		} else {
			others++
		}
	}
	switch {
	case others == 0:
		return 0
	case exits > 0:
		return 1
	}
	return 2
}
