package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"kprobe/probe/planner"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// ErrNoEvent says that the session has no such event, or has it no longer.
var ErrNoEvent = errors.New("the session has no such event")

// ArmAll arms definitions in every target, or in none. It resolves them in all targets first, then arms
// them in one target after the other. An error in a followed child is only a warning. A target that ends
// meanwhile is left out; the error is tracee.ErrGone if that leaves none.
func (s *Engine) ArmAll(ctx context.Context, added []*Definition) (err error) {
	type batch struct {
		tg   *Target
		ws   []planner.Request
		wait []*pendingDef
	}
	var batches []batch
	var wait []*Target
	var gone error
	ended := func(tg *Target) bool {
		if !tg.hasEnded() {
			return false
		}
		gone = tg.endedError()
		return true
	}
	for _, tg := range slices.Collect(maps.Values(s.Targets)) {
		switch {
		case !tg.IsMain():
			continue // it shares the main's probes
		case tg.loads():
			wait = append(wait, tg)
			continue
		}
		ws, later, err := tg.resolveAll(ctx, added)
		if err != nil && ended(tg) {
			continue
		}
		if err != nil && tg.Child {
			s.Warnf("child %d: %v", tg.Proc.PID(), err)
			continue
		}
		if err != nil {
			return tg.OrExecuted(ctx, err)
		}
		batches = append(batches, batch{tg, ws, later})
	}
	var done []*Target
	undo := func() {
		for _, tg := range done {
			if terr := tg.TakeOut(ctx, added); terr != nil {
				s.Warnf("%v", terr)
			}
		}
	}
	for _, b := range batches {
		err := b.tg.armFound(ctx, added, b.ws, b.wait)
		if err != nil && ended(b.tg) {
			continue
		}
		if err != nil {
			undo()
			return b.tg.OrExecuted(ctx, err)
		}
		done = append(done, b.tg)
	}
	for _, tg := range wait {
		err := tg.ArmDefs(ctx, added)
		if err != nil && ended(tg) {
			continue
		}
		if err != nil {
			undo()
			return err
		}
		done = append(done, tg)
	}
	if len(done) == 0 && gone != nil {
		return gone
	}
	return nil
}

// hasEnded reports whether the target's process has ended or is just ending: it has no memory any more.
func (tg *Target) hasEnded() bool {
	if tg.over {
		return true
	}
	maps, err := symbols.ReadMaps(tg.Proc.PID())
	return errors.Is(err, symbols.ErrGone) || err == nil && len(maps) == 0
}

// OrExecuted returns err, or an *ExecutedError if the target has executed a program meanwhile.
func (tg *Target) OrExecuted(ctx context.Context, err error) error {
	if tg.Proc.Executed(ctx) {
		return &ExecutedError{PID: tg.Proc.PID(), Err: err}
	}
	return err
}

// TakeOut removes the probes of definitions from the target. On an error they stay, and are switched on
// again.
func (tg *Target) TakeOut(ctx context.Context, list []*Definition) error {
	drop, goes := map[*Placed]bool{}, defSet(list)
	tg.awaited.remove(goes)
	for p := range tg.Placed {
		if goes[p.key()] {
			drop[p] = true
			p.feed.leave(p, true)
		}
	}
	ctx = context.WithoutCancel(ctx)
	if err := tg.change(ctx, &changeset{drop: drop}); err != nil {
		for p := range drop {
			p.feed.leave(p, false)
		}
		return err
	}
	for _, p := range tg.awaited.goneOf(goes) {
		tg.forget(p)
	}
	tg.watchLibraries(ctx)
	return nil
}

// DrainTime bounds how long Remove waits for a thread that is stuck in a probe's code, in a load
// from memory that does not respond.
const DrainTime = time.Second

// Drained waits until the sink has all hits of removed probes, but not longer than DrainTime.
func (s *Engine) Drained(ctx context.Context) error {
	end := time.Now().Add(DrainTime)
	for pause := 500 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		waiting := 0
		err := s.Tracer.Do(func() error {
			for _, tg := range s.Targets {
				if tg.IsMain() {
					waiting += tg.Reap(context.WithoutCancel(ctx))
				}
			}
			if !s.Running || s.Closed {
				waiting = 0
			}
			return nil
		})
		if err != nil || waiting == 0 || time.Now().After(end) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Enable switches events on or off, at once and without a stop. With the error ErrNoEvent it has
// changed nothing.
func (s *Engine) Enable(on bool, events []*results.Event) error {
	var err error
	s.Events.held(func(all []*Event) {
		here := map[*results.Event]*Event{}
		for _, e := range all {
			if !e.removed {
				here[&e.Event] = e
			}
		}
		var list []*Event
		for _, ev := range events {
			if here[ev] == nil {
				err = fmt.Errorf("%s/%s: %w", ev.Group, ev.Name, ErrNoEvent)
				return
			}
			list = append(list, here[ev])
		}
		for _, e := range list {
			e.turn(on)
		}
	})
	return err
}

// DisablePlaces switches off the probes at the places for which pick returns true. It returns their
// number.
func (s *Engine) DisablePlaces(pick func(place, module string) bool) int {
	n := 0
	for _, e := range s.Events.All() {
		e.mu.Lock()
		list := slices.Clone(e.probes)
		e.mu.Unlock()
		for _, p := range list {
			if at := p.shown(); pick(at.place, at.module) {
				p.feed.turn(p, false)
				n++
			}
		}
	}
	return n
}
