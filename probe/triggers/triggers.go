// Package triggers says which events a session's triggers belong to and which they act on, and
// what their conditions compare. Detours (probe/detour) and the tracer (probe/engine) carry
// them out at hits.
package triggers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/probe/ring"
)

// Set are the triggers of a session.
type Set struct {
	List  []*Trigger
	kinds map[string]uint8 // the events that triggers switch, GRP/EVENT, by number
	// StartsOff says that hits are recorded only once a trigger has said so.
	StartsOff bool
	Gated     bool // some trigger switches recording
	Snapshots bool // some trigger takes snapshots
	bound     bool // their events were found
}

// Trigger is one of a session's, with its number and the events, GRP/EVENT, that it was
// found to be of; "": that isn't there yet. One that names no group is of no event of
// another group that comes later.
type Trigger struct {
	*fetch.Trigger
	N       int
	At      string // at whose hits it is
	Watches string // the watchpoint that it moves
	Kind    uint8  // of the event that it switches; 0: that isn't there yet
}

// Error says what is wrong with a trigger. Its cause is a *fetch.SyntaxError, or says why
// the trigger can't be had.
type Error struct {
	Trigger *fetch.Trigger
	Err     error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrMany says that a session has more triggers than there can be.
var ErrMany = fmt.Errorf("more than %d triggers", ring.MaxTriggers)

// New makes the triggers of a session; alone says that its probes are to be left alone.
// Errors are ErrMany and *Error.
func New(list []*fetch.Trigger, alone bool) (c Set, err error) {
	if len(list) > ring.MaxTriggers {
		return c, ErrMany
	}
	c.kinds = map[string]uint8{}
	for i, t := range list {
		if (t.Action == fetch.TraceOn || t.Action == fetch.TraceOff) && !c.Gated {
			c.Gated, c.StartsOff = true, t.Action == fetch.TraceOn
		}
		if t.Action == fetch.Snapshot {
			if c.Snapshots = true; !alone {
				return c, &Error{t, t.Refused("the hits before it are printed already: snapshot is for detached probes (--detach)")}
			}
		}
		c.List = append(c.List, &Trigger{Trigger: t, N: i})
	}
	return c, nil
}

// Check says whether triggers can be had with definitions: their events are there, and
// what their filters compare is. Errors are ErrMany and *Error.
func Check(triggers []*fetch.Trigger, defs []*fetch.Def) error {
	if len(triggers) > ring.MaxTriggers {
		return ErrMany
	}
	for _, t := range triggers {
		if err := check(t, defs); err != nil {
			return &Error{t, err}
		}
	}
	return nil
}

func check(t *fetch.Trigger, defs []*fetch.Def) error {
	of, on := map[string]bool{}, map[string]bool{}
	for _, d := range defs {
		name := d.Group + "/" + d.Event
		if t.Of(d.Group, d.Event) {
			of[name] = true
			if _, err := t.Condition(d); err != nil {
				return err
			}
		}
		if t.On(d.Group, d.Event) && (t.Switches() || d.Kind == fetch.Watch) {
			on[name] = true
		}
	}
	switch {
	case len(of) == 0:
		return t.NoEvent(eventsAre(defs))
	case len(of) > 1:
		return t.NoEvent("it may be one of " + eventNames(of) + ": name its group, too")
	case t.Target == "":
		return nil
	case len(on) == 0 && !t.Switches():
		return t.NoTarget("it is to be a watchpoint, such as w:" + t.Target + " rw@-1:8, which watches nothing until then")
	case len(on) == 0:
		return t.NoTarget(eventsAre(defs))
	case len(on) > 1:
		return t.NoTarget("it may be one of " + eventNames(on) + ": name its group, too")
	}
	return nil
}

// mostNamed is how many events a message names.
const mostNamed = 8

func eventsAre(defs []*fetch.Def) string {
	all := map[string]bool{}
	for _, d := range defs {
		all[d.Group+"/"+d.Event] = true
	}
	switch n := eventNames(all); len(all) {
	case 0:
		return "there are no events"
	case 1:
		return "the only event is " + n
	default:
		return "the events are " + n
	}
}

func eventNames(set map[string]bool) string {
	var list []string
	for n := range set {
		list = append(list, n)
	}
	slices.Sort(list)
	if more := len(list) - mostNamed; more > 0 {
		list = append(list[:mostNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

// Known checks the triggers with all definitions that a session has, once: those of later
// events are of what they were found to be of. Errors are those of Check.
func (c *Set) Known(defs func() []*fetch.Def) error {
	if c.bound {
		return nil
	}
	list := make([]*fetch.Trigger, len(c.List))
	for i, t := range c.List {
		list[i] = t.Trigger
	}
	return Check(list, defs())
}

// Begin begins to bind events that come to be. undo has the triggers be bound as they are
// now.
func (c *Set) Begin() (undo func()) {
	kinds, bound := maps.Clone(c.kinds), c.bound
	var were []Trigger
	for _, t := range c.List {
		were = append(were, *t)
	}
	c.bound = true
	return func() {
		c.kinds, c.bound = kinds, bound
		for i, t := range c.List {
			*t = were[i]
		}
	}
}

// Bind finds the triggers of an event, which may watch memory, and those that act on it.
// off says that it begins switched off.
func (c *Set) Bind(group, event string, watch bool) (off bool) {
	name, first := group+"/"+event, true
	for _, t := range c.List {
		if t.At == "" && t.Of(group, event) {
			t.At = name
		}
		if !t.On(group, event) {
			continue
		}
		if !t.Switches() {
			if t.Watches == "" && watch {
				t.Watches = name
			}
			continue
		}
		if t.Kind == 0 {
			if c.kinds[name] == 0 {
				c.kinds[name] = uint8(len(c.kinds) + 1) // no more than triggers
			}
			t.Kind = c.kinds[name]
		}
		if t.Kind != c.kinds[name] {
			continue
		}
		if first && t.Action == fetch.EnableEvent {
			off = true
		}
		first = false
	}
	return off
}

// Kind is the number of an event, GRP/EVENT, that triggers switch; 0: none does.
func (c *Set) Kind(name string) uint8 { return c.kinds[name] }

// Of lists the triggers at the hits of an event, GRP/EVENT.
func (c *Set) Of(name string) (list []*Trigger) {
	for _, t := range c.List {
		if t.At == name {
			list = append(list, t)
		}
	}
	return list
}

// Compile compiles a definition, and the conditions of its event's triggers.
func Compile(d *fetch.Def, env fetch.Env, list []*Trigger) (*fetch.Program, error) {
	var conds []*fetch.Filter
	for _, t := range list {
		c, err := t.Condition(d)
		if err != nil {
			return nil, err
		}
		conds = append(conds, c)
	}
	stacks := slices.ContainsFunc(list, func(t *Trigger) bool { return t.Action == fetch.Stacktrace })
	prog, err := d.CompileWith(env, conds, stacks)
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		if t.Field != "" && prog.Scalar(t.Field) < 0 {
			return nil, t.NoField("it is to be a number that the definition fetches")
		}
	}
	return prog, nil
}

// NeedTracer says why a probe with triggers must be a breakpoint; "": it needn't.
func NeedTracer(list []*Trigger) string {
	for _, t := range list {
		if t.MovesWatch() {
			return "its trigger moves a watchpoint"
		}
	}
	return ""
}

// MovesWatch reports whether the trigger gives a watchpoint an address, or takes it away.
func (t *Trigger) MovesWatch() bool {
	return t.Action == fetch.SetWprobe || t.Action == fetch.ClearWprobe
}
