package probe

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"kprobe/fetch"
	"kprobe/probe/engine"
)

// registered is what a session knows of a probe that was registered.
type registered struct {
	probe Probe
	kp    *Kprobe
	def   *fetch.Def
	s     *Session
	engine.Handlers
}

// calls gives the handlers of a probe; nil for none. u may be nil.
func (u *registered) calls() *engine.Handlers {
	if u == nil {
		return nil
	}
	return &u.Handlers
}

// Register puts a probe into every process of the session; see RegisterAll.
func (s *Session) Register(ctx context.Context, p Probe) error { return s.RegisterAll(ctx, p) }

// RegisterAll puts probes into every process of the session, in one stop each:
// all of them, or none. It may be called before Run and while Run runs, by any
// goroutine, but not by a handler. Handlers run while Run runs; until then, and
// after its end, a thread that hits a breakpoint waits for Run or Close.
//
// The error is a *RegisterError for the first probe that can't be registered:
// its cause is ErrRegistered, *InvalidProbeError, *SignatureError,
// *fetch.SyntaxError, *RefusedError or *BoundaryError, or an error of package
// symbols. An error of no probe in particular is ErrInHandler, ErrClosed, or
// that of ctx. No probe is registered then, and no byte of a process is changed.
func (s *Session) RegisterAll(ctx context.Context, probes ...Probe) (err error) {
	if s.inHandler() {
		return ErrInHandler
	}
	var list []*registered
	defer func() {
		if err != nil {
			s.forget(list)
		}
	}()
	var defs []*fetch.Def
	for i, p := range probes {
		if nilProbe(p) {
			return &RegisterError{i, nil, &InvalidProbeError{Field: "Probe", Reason: "it is nil"}}
		}
		u, err := p.register()
		if err != nil {
			return &RegisterError{i, p, err}
		}
		u.s = s
		if !u.kp.reg.CompareAndSwap(nil, u) {
			return &RegisterError{i, p, ErrRegistered}
		}
		list = append(list, u)
		if err := s.enlist(u); err != nil {
			return &RegisterError{i, p, err}
		}
		defs = append(defs, u.def)
	}
	_, err = s.Add(ctx, defs)
	var bad *DefError
	if errors.As(err, &bad) {
		for i, u := range list {
			if u.def == bad.Def {
				return &RegisterError{i, u.probe, bad.Err}
			}
		}
	}
	return err
}

// nilProbe reports whether there is no probe behind p.
func nilProbe(p Probe) bool { return p == nil || reflect.ValueOf(p).IsNil() }

// enlist enters a probe by its definition, under a name that no event has.
func (s *Session) enlist(u *registered) error {
	return s.engine.Events.Naming(func(taken func(group, event string) bool) error {
		s.usersMu.Lock()
		defer s.usersMu.Unlock()
		name := u.def.Event
		for n := 1; taken(u.def.Group, u.def.Event) || s.nameRegistered(u.def); n++ {
			if u.def.Named {
				return &InvalidProbeError{Field: "Name", Reason: fmt.Sprintf("there is an event %s/%s", u.def.Group, u.def.Event)}
			}
			suffix := fmt.Sprintf("_%d", n)
			u.def.Event = name[:min(len(name), fetch.MaxName-len(suffix))] + suffix
		}
		s.users[u.def] = u
		return nil
	})
}

// nameRegistered reports whether a probe that is being registered has the name of a
// definition. usersMu is held.
func (s *Session) nameRegistered(d *fetch.Def) bool {
	for o := range s.users {
		if o.Group == d.Group && o.Event == d.Event {
			return true
		}
	}
	return false
}

// forget takes back what RegisterAll entered.
func (s *Session) forget(list []*registered) {
	s.usersMu.Lock()
	defer s.usersMu.Unlock()
	for _, u := range list {
		u.kp.ev.Store(nil)
		s.strike(u.def)
	}
}

// strike ends the registration of a definition's probe, if it has one. usersMu is
// held.
func (s *Session) strike(d *fetch.Def) {
	if u := s.users[d]; u != nil {
		delete(s.users, d)
		u.kp.reg.Store(nil)
	}
}

// Unregister takes a probe out of every process; see UnregisterAll.
func (s *Session) Unregister(ctx context.Context, p Probe) error { return s.UnregisterAll(ctx, p) }

// UnregisterAll takes probes out of every process, in one stop each. When it
// returns no handler of theirs runs, and none will: calls that a Kretprobe was
// following return without its Handler, and what a jprobe had recorded has gone
// to its function, or is counted as lost where a second isn't enough. It may be called by any goroutine at any time, but not by a
// handler, and not by a jprobe's function, for which it would wait.
//
// A probe that is not registered is a *RegisterError with ErrNotRegistered; the
// others are taken out all the same, and the errors are joined. Other errors
// are those of Remove.
func (s *Session) UnregisterAll(ctx context.Context, probes ...Probe) error {
	if s.inHandler() {
		return ErrInHandler
	}
	list, err := s.find(probes)
	if len(list) == 0 {
		return err
	}
	var events []*Event
	for _, u := range list {
		events = append(events, u.kp.Event())
	}
	if rerr := s.Remove(ctx, events...); rerr != nil {
		return errors.Join(err, rerr)
	}
	// What a reader that is far behind has not come to is lost.
	for _, u := range list {
		u.Gone.Store(true)
	}
	s.engine.Out.AwaitTurn(engine.DrainTime) // it may be called by a jprobe's function
	return err
}

// find gives those of probes that are registered with the session, and an error
// for each that isn't.
func (s *Session) find(probes []Probe) (list []*registered, err error) {
	var errs []error
	for i, p := range probes {
		var u *registered
		if !nilProbe(p) {
			u = p.kprobe().reg.Load()
		}
		if u == nil || u.s != s || u.kp.Event() == nil {
			errs = append(errs, &RegisterError{i, p, ErrNotRegistered})
			continue
		}
		list = append(list, u)
	}
	return list, errors.Join(errs...)
}

// EnableProbe switches probes on, at once and without a stop. It may be called
// by any goroutine and by handlers. The error is a *RegisterError with
// ErrNotRegistered; nothing is switched then.
func (s *Session) EnableProbe(probes ...Probe) error { return s.switchProbes(true, probes) }

// DisableProbe switches probes off: their hits call no handler and aren't
// counted. A call that a Kretprobe follows already still has its Handler called,
// as in the kernel. See EnableProbe.
func (s *Session) DisableProbe(probes ...Probe) error { return s.switchProbes(false, probes) }

func (s *Session) switchProbes(on bool, probes []Probe) error {
	list, err := s.find(probes)
	if err != nil {
		return err
	}
	var events []*Event
	for _, u := range list {
		events = append(events, u.kp.Event())
	}
	return s.Enable(on, events...)
}

// inHandler reports whether the caller is a handler that runs on the tracer's
// thread.
func (s *Session) inHandler() bool { return s.engine.Tracer.Here() && s.engine.Handling }
