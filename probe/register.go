package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"kprobe/fetch"
)

// ErrNoEvent says that the session has no such event, or no longer.
var ErrNoEvent = errors.New("the session has no such event")

// Arm is Add for those who don't need the link.
func (s *Session) Arm(ctx context.Context, defs []*fetch.Def) error {
	_, err := s.Add(ctx, defs)
	return err
}

// Add adds definitions and puts their probes in, in every process of the
// session: all of them, or none. It may be called before Run and while Run
// runs, by any goroutine. What is there already misses no hit: see change.go.
//
// The link has their events. A definition of
// an event that is there adds places to it, and must fetch the same. An event
// that was removed and comes again goes on counting where it was, and an event
// that is switched off (Enable) stays so.
//
// In a command that was started and whose files are not mapped yet the probes
// are armed while Run runs, before the command's own first instruction; a
// definition that fails then makes Run return its error. In followed children
// of the session's processes a definition that can't be armed is warned of.
//
// A definition that Options.Pending lets wait, and whose library is not mapped,
// is armed when the program loads it, before the library's constructors run.
// When a library is unloaded its probes are gone, and armed again if it returns.
//
// Errors are *DefError with the cause, *ExecutedError, ErrClosed, ErrInHandler, and
// that of ctx; nothing is left behind then.
func (s *Session) Add(ctx context.Context, defs []*fetch.Def) (*Link, error) {
	events, err := s.add(ctx, defs, false)
	if err != nil {
		return nil, err
	}
	return &Link{s, events}, nil
}

// add is Add; waits lets all of the definitions wait for their libraries.
func (s *Session) add(ctx context.Context, defs []*fetch.Def, waits bool) ([]*Event, error) {
	if s.inHandler() {
		return nil, ErrInHandler
	}
	if err := s.prepareMore(ctx, defs); err != nil {
		return nil, err
	}
	defer s.heard()
	var events []*Event
	err := s.changing(ctx, func() error {
		added, err := s.addEvents(defs)
		if err != nil {
			return err
		}
		unbind, err := s.bindTriggers(added)
		if err != nil {
			s.dropEvents(added)
			return err
		}
		for _, x := range added {
			x.waits = waits
		}
		if err := s.armAll(ctx, added); err != nil {
			unbind()
			s.dropEvents(added)
			return err
		}
		seen := map[*event]bool{}
		for _, x := range added {
			x.waits = x.waits || s.options.Wait != nil // in processes to come
			if !seen[x.ev] {
				seen[x.ev] = true
				events = append(events, &x.ev.Event)
			}
		}
		return nil
	})
	return events, err
}

// armAll arms definitions in every target: first all that can fail, then one
// target after the other.
func (s *engine) armAll(ctx context.Context, added []*defOf) (err error) {
	type batch struct {
		tg   *target
		ws   []patchRequest
		wait []*pendingDef
	}
	var batches []batch
	var wait []*target
	for _, tg := range slices.Collect(maps.Values(s.targets)) {
		switch {
		case !tg.isMain():
			continue // it has what the main has
		case tg.loads():
			wait = append(wait, tg)
			continue
		}
		ws, later, err := tg.resolveAll(ctx, added)
		if err != nil && tg.child {
			s.warnf("child %d: %v", tg.proc.PID(), err)
			continue
		}
		if err != nil {
			return tg.orExecuted(ctx, err)
		}
		batches = append(batches, batch{tg, ws, later})
	}
	var done []*target
	undo := func() {
		for _, tg := range done {
			if terr := tg.takeOut(ctx, added); terr != nil {
				s.warnf("%v", terr)
			}
		}
	}
	for _, b := range batches {
		if err := b.tg.armFound(ctx, added, b.ws, b.wait); err != nil {
			undo()
			return b.tg.orExecuted(ctx, err)
		}
		done = append(done, b.tg)
	}
	for _, tg := range wait {
		if err := tg.armDefs(ctx, added); err != nil {
			undo()
			return err
		}
		done = append(done, tg)
	}
	return nil
}

// orExecuted is err, or where the target has executed a program meanwhile that.
func (tg *target) orExecuted(ctx context.Context, err error) error {
	if tg.proc.Executed(ctx) {
		return &ExecutedError{PID: tg.proc.PID(), Err: err}
	}
	return err
}

// takeOut takes the probes of definitions out of the target.
func (tg *target) takeOut(ctx context.Context, list []*defOf) error {
	drop, goes := map[*placed]bool{}, defSet(list)
	tg.pending = slices.DeleteFunc(tg.pending, func(p *pendingDef) bool { return goes[p.key()] })
	for p := range tg.placed {
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
	for p := range tg.gone {
		if goes[p.key()] {
			tg.forget(p)
		}
	}
	tg.watchLibraries(ctx)
	return nil
}

// Remove takes events out, with all their places, in every process. It may be
// called before Run and while Run runs, by any goroutine but that of a handler
// or of the sink, which it waits for: when it returns while Run runs, the sink
// has had every hit that was recorded. A call that a return probe is following
// is no hit any more. The counters stay in Stats and Summary; what the events
// took in the memory file is used again.
//
// Errors are ErrNoEvent, and then nothing is removed; ErrClosed; and those of
// writing to a process, which then keeps the events. If ctx ends first the
// probes are out and their last hits are still to come.
func (s *Session) Remove(ctx context.Context, events ...*Event) error {
	named := map[*Event]bool{}
	for _, ev := range events {
		named[ev] = true
	}
	return s.removeDefs(ctx, func(x *defOf) bool { return named[&x.ev.Event] }, events)
}

// removeDefs is Remove for the definitions that match; each of events must have
// one that does.
func (s *Session) removeDefs(ctx context.Context, match func(*defOf) bool, events []*Event) error {
	if s.inHandler() {
		return ErrInHandler
	}
	defer s.heard()
	err := s.changing(ctx, func() error {
		var list []*defOf
		found := map[*Event]bool{}
		for _, x := range s.definitions() {
			if match(x) {
				list = append(list, x)
				found[&x.ev.Event] = true
			}
		}
		for _, ev := range events {
			if !found[ev] {
				return fmt.Errorf("%s/%s: %w", ev.Group, ev.Name, ErrNoEvent)
			}
		}
		var errs []error
		for _, tg := range s.targets {
			if tg.isMain() {
				if err := tg.takeOut(ctx, list); err != nil {
					errs = append(errs, fmt.Errorf("process %d: %w", tg.proc.PID(), err))
				}
			}
		}
		if len(errs) == 0 {
			s.retireEvents(list)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	return s.drained(ctx)
}

// drainTime bounds how long Remove waits for a thread that is stuck in the code
// of a probe, in a load from memory that does not answer.
const drainTime = time.Second

// drained waits until the hits of what was taken out are with the sink.
func (s *engine) drained(ctx context.Context) error {
	end := time.Now().Add(drainTime)
	for pause := 500 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		waiting := 0
		err := s.tracer.Do(func() error {
			for _, tg := range s.targets {
				if tg.isMain() {
					waiting += tg.reap(context.WithoutCancel(ctx))
				}
			}
			if !s.running || s.closed {
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

func (s *engine) enable(on bool, events []*Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := map[*Event]*event{}
	for _, e := range s.events {
		if !e.removed {
			here[&e.Event] = e
		}
	}
	var list []*event
	for _, ev := range events {
		if here[ev] == nil {
			return fmt.Errorf("%s/%s: %w", ev.Group, ev.Name, ErrNoEvent)
		}
		list = append(list, here[ev])
	}
	for _, e := range list {
		e.turn(on)
	}
	return nil
}

func (s *engine) disablePlaces(pick func(place, module string) bool) int {
	s.mu.Lock()
	events := slices.Clone(s.events)
	s.mu.Unlock()
	n := 0
	for _, e := range events {
		e.mu.Lock()
		list := slices.Clone(e.probes)
		e.mu.Unlock()
		for _, p := range list {
			if at := p.spot(); pick(at.name, at.module) {
				p.feed.turn(p, false)
				n++
			}
		}
	}
	return n
}
