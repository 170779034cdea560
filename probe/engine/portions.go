package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kprobe/probe/area"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
)

// How thousands of jumps are written
//
// One stop for all of them would be noticeable. If no patch has to give way for them, the jumps
// don't depend on each other. Then they are written in portions, with one stop of all threads for
// each. Jumps at exits are written before jumps that note calls: otherwise a call could be noted
// whose return is not seen. Breakpoints come last, because a thread that meets one waits until the
// tracer has written all portions. If a portion fails, all jumps are removed again.
//
// When kprobe leaves, thousands of jumps are taken out in portions, too, in the opposite order: jumps
// that note calls first. The probes are switched off by then. What a portion has taken out is no longer
// in the journal. Whatever the portions leave, because a thread could not be stopped or a write has
// failed, the stop in which kprobe leaves takes out (package area).

const (
	// portionTime is roughly how long threads are stopped for a portion.
	portionTime = 10 * time.Millisecond
	// portionStep is how many jumps are written at most before the time is checked again, leastStep how
	// many at least.
	portionStep = 512
	leastStep   = 64
)

// inPortions reports whether the jumps that come may be written in portions.
func (x *exchanged) inPortions() bool {
	return len(x.patches) > portionStep && len(x.calls) == 0 && !slices.ContainsFunc(x.patches, func(p *Patch) bool {
		return slices.ContainsFunc(p.Wants, func(w planner.Request) bool { return w.P.GoABI && w.Kind != planner.Entry })
	})
}

// armInPortions writes the plan's jumps, which have journal entries already. On an error they are
// removed again.
func (tg *Target) armInPortions(ctx context.Context, x *exchanged) error {
	todo := exitsFirst(x.patches)
	all := len(todo)
	p := portions{began: time.Now()}
	for len(todo) > 0 {
		tg.Engine.progress("writing jumps", all-len(todo), all)
		var err error
		if todo, err = p.next(ctx, tg, todo, tg.ArmStopped); err == nil {
			err = tg.Engine.hurried()
		}
		if err != nil {
			return errors.Join(err, tg.disarmAll(ctx, x))
		}
	}
	tg.Engine.Logf("process %d: %d jumps were written in %v", tg.Proc.PID(), all, &p)
	return nil
}

// portions is what has been done in portions so far.
type portions struct {
	began   time.Time
	stops   int
	longest time.Duration // of the stops
	step    int           // how many patches are done before the time is checked again; 0: none is done yet
}

// String says how long it took, and how often and how long the threads were stopped.
func (p *portions) String() string {
	return fmt.Sprintf("%v, in %d stops of %v at most", time.Since(p.began).Round(time.Millisecond), p.stops, p.longest.Round(time.Millisecond))
}

// next stops all threads for a portion: it does what do does to the first patches of todo, for about portionTime.
// rest are those to which it was not done.
func (p *portions) next(ctx context.Context, tg *Target, todo []*Patch, do func([]*Patch, []*tracee.Thread) error) (rest []*Patch, err error) {
	defer collecting.hold()()
	stop := time.Now()
	err = tg.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		for from := time.Now(); len(todo) > 0 && time.Since(from) < portionTime; {
			began := time.Now()
			part := todo[:min(max(p.step, leastStep), len(todo))]
			if err := tg.lateUnder(part); err != nil {
				return err
			}
			if err := do(part, stopped); err != nil {
				return err
			}
			todo = todo[len(part):]
			p.step = nextStep(max(p.step, leastStep), time.Since(began))
		}
		return nil
	})
	p.stops, p.longest = p.stops+1, max(p.longest, time.Since(stop))
	return todo, tracee.IgnoreLate(err)
}

// nextStep is how many patches are done at once after step patches took a time: more if they were done in a moment, and
// fewer if the portion was longer for them.
func nextStep(step int, took time.Duration) int {
	switch {
	case took > portionTime/4:
		return max(step/2, leastStep)
	case took < portionTime/16:
		return min(step*2, portionStep)
	}
	return step
}

// liftInPortions takes out jumps before kprobe leaves, so that its last stop has few left.
func (tg *Target) liftInPortions(ctx context.Context) {
	var todo []*Patch
	for _, p := range tg.Patches.List {
		if p.Armed {
			todo = append(todo, p)
		}
	}
	if len(todo) <= portionStep {
		return
	}
	todo = exitsLast(todo)
	all := len(todo)
	p := portions{began: time.Now()}
	for len(todo) > 0 {
		var err error
		todo, err = p.next(ctx, tg, todo, tg.lift)
		if errors.Is(err, tracee.ErrGone) {
			return
		}
		if err != nil {
			tg.Engine.Logf("process %d: jumps are taken out in one stop: %v", tg.Proc.PID(), err)
			break
		}
		if tg.answer() != nil {
			return // it is gone, or will be left in the stop that follows
		}
	}
	tg.Area.Journal.Trim()
	tg.Area.SettleLifted()
	tg.Engine.Logf("process %d: %d jumps were taken out in %v", tg.Proc.PID(), all-len(todo), &p)
}

// lift takes jumps out of the text and the journal, for good. All threads must be stopped. Jumps that
// could not be taken out stay armed.
func (tg *Target) lift(list []*Patch, stopped []*tracee.Thread) error {
	all, of := writesOf(list)
	err := tg.Area.Lift(all, stopped)
	for i, p := range list {
		if slices.ContainsFunc(of[i], func(w *area.Write) bool { return !w.Done }) {
			continue
		}
		for q := p; q != nil; q = q.island {
			tg.forgetEntries(q)
		}
	}
	return err
}

// disarmAll removes those jumps of a plan that are in the text, in portions too. What a failed portion leaves is
// removed in one stop.
func (tg *Target) disarmAll(ctx context.Context, x *exchanged) error {
	todo := exitsLast(x.patches)
	p := portions{began: time.Now()}
	for len(todo) > 0 {
		var err error
		if todo, err = p.next(ctx, tg, todo, tg.RestorePatches); err != nil {
			break
		}
	}
	if len(todo) == 0 {
		return nil
	}
	err := tg.WithStopped(ctx, func(stopped []*tracee.Thread) error { return tg.RestorePatches(x.patches, stopped) })
	if err = tracee.IgnoreLate(err); err != nil {
		tg.lose(x)
	}
	return err
}

// byNotes divides patches by their rank (notes). Those of one rank stay in their order.
func byNotes(list []*Patch) (of [3][]*Patch) {
	for _, p := range list {
		of[p.notes()] = append(of[p.notes()], p)
	}
	return of
}

// exitsFirst sorts patches by their rank.
func exitsFirst(list []*Patch) []*Patch {
	of := byNotes(list)
	return slices.Concat(of[:]...)
}

// exitsLast sorts patches by their rank, the highest first.
func exitsLast(list []*Patch) []*Patch {
	of := byNotes(list)
	return slices.Concat(of[2], of[1], of[0])
}

// notes is a patch's rank in the order of writing: 0 if it serves only exits, 1 if it serves exits
// and others, 2 if it serves no exit.
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
