package probe

import (
	"context"
	"errors"
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/engine"
)

// Arm is Add without the link.
func (s *Session) Arm(ctx context.Context, defs []*fetch.Def) error {
	_, err := s.Add(ctx, defs)
	return err
}

// Add adds definitions and arms their probes in every process of the session: all of them, or
// none. It may be called before and during Run, by any goroutine. Probes that are already there
// miss no hit. The link stands for the events of the definitions.
//
//   - If an event exists already, a definition of it adds places. It must fetch the same
//     values.
//   - If an event was removed and comes back, its counters continue.
//   - If an event is switched off (Enable), it stays off.
//   - In a command of Start whose files are not mapped yet, the probes are armed during Run,
//     before the command's own first instruction. If that fails, Run returns the error.
//   - In followed children of the session's processes, a definition that can't be armed is only
//     a warning.
//   - A definition for which Options.Pending returns true, and whose library is not mapped, is
//     armed when the program loads the library, before the library's constructors run. When a
//     library is unloaded its probes are gone. They are armed again if it returns.
//
// Errors are *DefError with the cause, *ExecutedError, ErrClosed, ErrInHandler, and that of
// ctx. Nothing is left behind then.
func (s *Session) Add(ctx context.Context, defs []*fetch.Def) (*Link, error) {
	events, err := s.add(ctx, defs, false)
	if err != nil {
		return nil, err
	}
	return &Link{s, events}, nil
}

// add is Add. If waits is true, all of the definitions wait for their libraries.
func (s *Session) add(ctx context.Context, defs []*fetch.Def, waits bool) ([]*Event, error) {
	if s.inHandler() {
		return nil, ErrInHandler
	}
	if err := s.engine.PrepareMore(ctx, defs); err != nil {
		return nil, err
	}
	defer s.engine.Heard()
	var events []*Event
	err := s.engine.Changing(ctx, func() error {
		added, err := s.engine.AddEvents(defs)
		if err != nil {
			return err
		}
		unbind, err := s.engine.BindTriggers(added)
		if err != nil {
			s.engine.Events.Drop(added)
			return err
		}
		for _, x := range added {
			x.Waits = waits
		}
		if err := s.engine.ArmAll(ctx, added); err != nil {
			unbind()
			s.engine.Events.Drop(added)
			return err
		}
		seen := map[*engine.Event]bool{}
		for _, x := range added {
			x.Waits = x.Waits || s.engine.Opts.Wait != nil // in processes to come
			if !seen[x.Ev] {
				seen[x.Ev] = true
				events = append(events, &x.Ev.Event)
			}
		}
		return nil
	})
	return events, err
}

// Remove removes events, with all their places, from every process. It may be called before and
// during Run. It waits for handlers and for the sink, so neither may call it. When it returns
// during Run, the sink has had every hit that was recorded. A call that a return probe is
// following is no longer a hit. The counters stay in Stats and Summary. The events' space in
// the memory file is reused.
//
// Errors are ErrNoEvent, and then nothing is removed; ErrClosed; and those of writing to a
// process, which then keeps the events. If ctx ends first, the probes are removed and their
// last hits are still to come.
func (s *Session) Remove(ctx context.Context, events ...*Event) error {
	named := map[*Event]bool{}
	for _, ev := range events {
		named[ev] = true
	}
	return s.removeDefs(ctx, func(x *engine.Definition) bool { return named[&x.Ev.Event] }, events)
}

// removeDefs is Remove for the definitions that match. Each of events must have one that
// matches.
func (s *Session) removeDefs(ctx context.Context, match func(*engine.Definition) bool, events []*Event) error {
	if s.inHandler() {
		return ErrInHandler
	}
	defer s.engine.Heard()
	err := s.engine.Changing(ctx, func() error {
		var list []*engine.Definition
		found := map[*Event]bool{}
		for _, x := range s.engine.Events.Definitions() {
			if match(x) {
				list = append(list, x)
				found[&x.Ev.Event] = true
			}
		}
		for _, ev := range events {
			if !found[ev] {
				return fmt.Errorf("%s/%s: %w", ev.Group, ev.Name, ErrNoEvent)
			}
		}
		var errs []error
		for _, tg := range s.engine.Targets {
			if tg.IsMain() {
				if err := tg.TakeOut(ctx, list); err != nil {
					errs = append(errs, fmt.Errorf("process %d: %w", tg.Proc.PID(), err))
				}
			}
		}
		if len(errs) == 0 {
			s.engine.Events.Retire(list)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	return s.engine.Drained(ctx)
}
