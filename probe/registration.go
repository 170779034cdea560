package probe

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"kprobe/fetch"
	"kprobe/probe/engine"
)

// registered is what a session knows about a registered probe.
type registered struct {
	probe Probe
	kp    *Kprobe
	def   *fetch.Def
	s     *Session
	engine.Handlers
}

// calls returns the handlers of a probe; nil if u is nil.
func (u *registered) calls() *engine.Handlers {
	if u == nil {
		return nil
	}
	return &u.Handlers
}

// Register puts a probe into every process of the session. See RegisterAll.
func (s *Session) Register(ctx context.Context, p Probe) error { return s.RegisterAll(ctx, p) }

// RegisterAll puts probes into every process of the session, in one stop of each: all of them,
// or none. It may be called before and during Run, by any goroutine, but not by a handler.
// Handlers run while Run runs. Before and after that, a thread that hits a breakpoint waits for
// Run or Close.
//
// The error is a *RegisterError for the first probe that can't be registered. Its cause is
// ErrRegistered, *InvalidProbeError, *SignatureError, *fetch.SyntaxError, *RefusedError,
// *BoundaryError, or an error of package symbols. An error that concerns no probe in particular
// is ErrInHandler, ErrClosed, or that of ctx. After an error no probe is registered, and no
// byte of a process has changed.
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

// nilProbe reports whether p holds no probe.
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

// nameRegistered reports whether a probe that is being registered has the name of a definition.
// usersMu must be held.
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

// strike ends the registration of a definition's probe, if it has one. usersMu must be held.
func (s *Session) strike(d *fetch.Def) {
	if u := s.users[d]; u != nil {
		delete(s.users, d)
		u.kp.reg.Store(nil)
	}
}

// Unregister removes a probe from every process. See UnregisterAll.
func (s *Session) Unregister(ctx context.Context, p Probe) error { return s.UnregisterAll(ctx, p) }

// UnregisterAll removes probes from every process, in one stop of each. When it returns, none
// of their handlers is running, and none will. Calls that a Kretprobe was following return
// without its Handler. Recorded hits of a Jprobe have been passed to its function, or are
// counted as lost if that took more than a second.
//
// Any goroutine may call it at any time, except a handler and the function of a Jprobe, for
// which it would wait.
//
// A probe that is not registered is a *RegisterError with ErrNotRegistered. The others are
// still removed, and the errors are joined. Other errors are those of Remove.
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

// find returns those of probes that are registered with the session, and an error for each that
// isn't.
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

// EnableProbe switches probes on, at once and without a stop. Any goroutine may call it, and
// handlers may. The error is a *RegisterError with ErrNotRegistered, and nothing was switched
// then.
func (s *Session) EnableProbe(probes ...Probe) error { return s.switchProbes(true, probes) }

// DisableProbe switches probes off: their hits call no handler and aren't counted. If a
// Kretprobe is following a call already, its Handler is still called for it, as in the kernel.
// See EnableProbe.
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

// inHandler reports whether the caller is a handler on the tracer's thread.
func (s *Session) inHandler() bool { return s.engine.Tracer.Here() && s.engine.Handling }
