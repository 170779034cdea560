package probe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// What is done at hits besides recording them
//
// A session's limit, its end and its triggers are looked at where a hit is taken: by
// detours in the program (probe/detour, control.go), by the tracer for breakpoints and
// watchpoints, over the same words of the memory file (probe/ring, control.go). Each
// address space has words of its own.

// controls is what of it the session knows.
type controls struct {
	triggers []*trigger
	kinds    map[string]uint8 // the events that triggers switch, GRP/EVENT, by number
	// startsOff says that hits are recorded only once a trigger has said so.
	startsOff bool
	gated     bool // some trigger switches recording
	snapshots bool // some trigger takes snapshots
	bound     bool // their events were found
}

// trigger is one of a session's, with its number and the events, GRP/EVENT, that it was
// found to be of; "": that isn't there yet. One that names no group is of no event of
// another group that comes later.
type trigger struct {
	*fetch.Trigger
	n       int
	of      string // at whose hits it is
	watches string // the watchpoint that it moves
	kind    uint8  // of the event that it switches; 0: that isn't there yet
}

// TriggerError says what is wrong with a trigger. Its cause is a *fetch.SyntaxError, or
// says why the trigger can't be had.
type TriggerError struct {
	Trigger *fetch.Trigger
	Err     error
}

// Error implements error.
func (e *TriggerError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *TriggerError) Unwrap() error { return e.Err }

// ErrManyTriggers says that a session has more triggers than there can be.
var ErrManyTriggers = fmt.Errorf("more than %d triggers", ring.MaxTriggers)

func newControls(o *Options) (c controls, err error) {
	if len(o.Triggers) > ring.MaxTriggers {
		return c, ErrManyTriggers
	}
	c.kinds = map[string]uint8{}
	for i, t := range o.Triggers {
		if (t.Action == fetch.TraceOn || t.Action == fetch.TraceOff) && !c.gated {
			c.gated, c.startsOff = true, t.Action == fetch.TraceOn
		}
		if t.Action == fetch.Snapshot {
			if c.snapshots = true; !o.Detach {
				return c, &TriggerError{t, t.Refused("what led to the hit was given to whoever traces: a snapshot is of probes that are left alone, by --detach")}
			}
		}
		c.triggers = append(c.triggers, &trigger{Trigger: t, n: i})
	}
	return c, nil
}

// timed reports whether time stamps decide about hits.
func (s *Session) timed() bool { return s.opts.Limit > 0 || s.opts.Expire > 0 }

// CheckTriggers says whether triggers can be had with definitions: their events are
// there, and what their filters compare is. Errors are *TriggerError.
func CheckTriggers(triggers []*fetch.Trigger, defs []*fetch.Def) error {
	if len(triggers) > ring.MaxTriggers {
		return ErrManyTriggers
	}
	for _, t := range triggers {
		if err := checkTrigger(t, defs); err != nil {
			return &TriggerError{t, err}
		}
	}
	return nil
}

func checkTrigger(t *fetch.Trigger, defs []*fetch.Def) error {
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

// bindTriggers finds the events of triggers among those that the session has now. An
// event that is to be switched on before it is switched off begins switched off. undo
// has them be as they were, for events that don't come to be.
func (s *Session) bindTriggers(added []*defOf) (undo func(), err error) {
	if len(s.control.triggers) == 0 {
		return func() {}, nil
	}
	if !s.control.bound {
		var defs []*fetch.Def
		for _, x := range s.definitions() {
			defs = append(defs, x.def)
		}
		if err := CheckTriggers(s.opts.Triggers, defs); err != nil {
			return nil, err
		}
	}
	undo = s.control.remember()
	s.control.bound = true
	for _, x := range added {
		s.control.bind(x.ev, x.def.Kind == fetch.Watch)
	}
	return undo, nil
}

// remember gives what has the triggers be bound as they are now.
func (c *controls) remember() (undo func()) {
	kinds, bound := maps.Clone(c.kinds), c.bound
	var were []trigger
	for _, t := range c.triggers {
		were = append(were, *t)
	}
	return func() {
		c.kinds, c.bound = kinds, bound
		for i, t := range c.triggers {
			*t = were[i]
		}
	}
}

// bind finds the triggers of an event, which may watch memory, and those that act on it.
func (c *controls) bind(ev *event, watch bool) {
	name, first := ev.Group+"/"+ev.Name, true
	for _, t := range c.triggers {
		if t.of == "" && t.Of(ev.Group, ev.Name) {
			t.of = name
		}
		if !t.On(ev.Group, ev.Name) {
			continue
		}
		if !t.Switches() {
			if t.watches == "" && watch {
				t.watches = name
			}
			continue
		}
		if t.kind == 0 {
			if c.kinds[name] == 0 {
				c.kinds[name] = uint8(len(c.kinds) + 1) // no more than triggers
			}
			t.kind = c.kinds[name]
		}
		if t.kind != c.kinds[name] {
			continue
		}
		if first && t.Action == fetch.EnableEvent {
			ev.off.Store(true)
		}
		first = false
	}
}

// triggersOf lists the triggers of an event.
func (s *Session) triggersOf(ev *event) (list []*trigger) {
	for _, t := range s.control.triggers {
		if t.of == ev.Group+"/"+ev.Name {
			list = append(list, t)
		}
	}
	return list
}

// compile compiles a definition, and the conditions of its event's triggers.
func (s *Session) compile(d *fetch.Def, ev *event, env fetch.Env) (*fetch.Program, []*trigger, error) {
	list := s.triggersOf(ev)
	var conds []*fetch.Filter
	for _, t := range list {
		c, err := t.Condition(d)
		if err != nil {
			return nil, nil, err
		}
		conds = append(conds, c)
	}
	stacks := slices.ContainsFunc(list, func(t *trigger) bool { return t.Action == fetch.Stacktrace })
	prog, err := d.CompileWith(env, conds, stacks)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range list {
		if t.Field != "" && prog.Scalar(t.Field) < 0 {
			return nil, nil, t.NoField("it is to be a number that the definition fetches")
		}
	}
	return prog, list, nil
}

// needTracer says why a probe with triggers must be a breakpoint; "": it needn't.
func needTracer(list []*trigger) string {
	for _, t := range list {
		if t.Action == fetch.SetWprobe || t.Action == fetch.ClearWprobe {
			return "its trigger moves a watchpoint"
		}
	}
	return ""
}

// layControl lays the words down that decide about hits, before there is any.
func (tg *target) layControl() error {
	s, f := tg.s, tg.area.File
	l := f.Layout
	tg.feed.producer.TurnGate(!s.control.startsOff)
	f.Store64(l.Control.Off+ring.ControlEnd, ^uint64(0))
	for _, t := range s.control.triggers {
		left := t.Count
		if left == 0 {
			left = ^uint64(0)
		}
		f.Store64(l.Trigger(t.n), left)
	}
	if !s.timed() {
		return nil
	}
	return tg.layTimes()
}

// layTimes says in time stamps what a second is, and when the end is, from now on.
func (tg *target) layTimes() error {
	now, rate, err := tg.feed.rate()
	if err != nil {
		return err
	}
	f := tg.area.File
	at := f.Layout.Control.Off
	f.Store64(at+ring.ControlRate, ring.RateOf(rate))
	if end := tg.s.opts.Expire; end > 0 {
		f.Store64(at+ring.ControlEnd, now.TSC+ring.TicksIn(uint64(end), rate))
	}
	return nil
}

// gate is the address of the byte that triggers switch recording by; 0: there is none.
func (tg *target) gate() symbols.Addr {
	switch {
	case tg.s.opts.Detach:
		return tg.area.Gate
	case tg.s.control.gated:
		l := tg.area.File.Layout
		return tg.area.File.Addr(l.Control.Off + ring.ControlOn)
	}
	return 0
}

// controlled reports whether more is to be done at a probe's hits than to record or to
// count them. Where a gate is looked at, counting is.
func (p *placed) controlled() bool {
	s := p.target.s
	return p.user == nil && (s.timed() || len(p.triggers) > 0 || s.control.gated && !s.records(p.user))
}

// detourControl is what a probe's detours do besides recording; nil: nothing.
func (p *placed) detourControl() *detour.Control {
	s := p.target.s
	if !p.controlled() {
		return nil
	}
	f := p.feed.file
	c := &detour.Control{Ends: s.opts.Expire > 0}
	if s.opts.Limit > 0 && s.records(p.user) {
		c.Most, c.Bucket = s.opts.Limit, uint64(f.Addr(p.bucket()))
	}
	for i, t := range p.triggers {
		if !detour.CanTrigger(t.Action) {
			continue
		}
		x := detour.Trigger{Action: t.Action, Condition: i, Kind: t.kind}
		if t.Count > 0 {
			x.Left = uint64(f.Addr(f.Layout.Trigger(t.n)))
		}
		c.Triggers = append(c.Triggers, x)
	}
	return c
}

// bucket is where the hits of the probe's event in a second are counted.
func (p *placed) bucket() int64 {
	l := p.feed.file.Layout
	return l.Bucket(p.ev.bucket % (l.MaxProbes + 1))
}

// on reports whether hits are recorded: no trigger has switched that off.
func (t *feed) on() bool {
	return !t.s.control.gated || t.producer.Gate()
}

// expired reports whether the end is over at a time stamp. Then all probes are switched
// off.
func (t *feed) expired(tsc uint64) bool {
	if t.s.opts.Expire == 0 || tsc < t.file.Load64(t.file.Layout.Control.Off+ring.ControlEnd) {
		return false
	}
	t.file.Store64(t.file.Layout.Control.Off+ring.ControlOver, 1)
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.ids {
		if p != nil {
			t.setFlags(p, 0, ring.FlagEnabled)
		}
	}
	return true
}

// limited reports whether the event of a probe has had its hits in the second of a time
// stamp.
func (t *feed) limited(p *placed, tsc uint64) bool {
	rate := t.file.Load64(t.file.Layout.Control.Off + ring.ControlRate)
	return t.s.opts.Limit > 0 && p.user == nil && t.s.records(p.user) && !t.producer.Take(p.bucket(), tsc, rate, t.s.opts.Limit)
}

// before does what triggers do in front of a hit, which the session's context is of.
func (s *Session) before(p *placed, rec []byte) {
	for i, t := range p.triggers {
		if t.Action == fetch.TraceOn && p.prog.Holds(i, &s.ctx, rec) {
			p.feed.turnGate(t, true)
		}
	}
}

// withStack gives the record of a hit the stack, if a trigger says so.
func (s *Session) withStack(p *placed, rec []byte) []byte {
	if p.prog.Stack == nil || p.prog.Stack.Mark == 0 {
		return rec
	}
	for i, t := range p.triggers {
		if t.Action == fetch.Stacktrace && p.prog.Holds(i, &s.ctx, rec) && p.feed.spend(t) {
			return p.prog.AppendStack(&s.ctx, rec)
		}
	}
	return rec
}

// after does what triggers do behind a hit.
func (s *Session) after(p *placed, rec []byte) {
	for i, t := range p.triggers {
		if t.Action == fetch.TraceOn || !p.prog.Holds(i, &s.ctx, rec) {
			continue
		}
		switch t.Action {
		case fetch.TraceOff:
			p.feed.turnGate(t, false)
		case fetch.EnableEvent, fetch.DisableEvent:
			p.feed.turnEvent(t, t.Action == fetch.EnableEvent)
		case fetch.SetWprobe, fetch.ClearWprobe:
			p.target.moveWatch(p, t, rec)
		}
	}
}

// turnGate opens or shuts the gate, if it isn't.
func (t *feed) turnGate(x *trigger, on bool) {
	if t.producer.Gate() != on && t.spend(x) && !t.producer.TurnGate(on) {
		t.giveBack(x)
	}
}

// turnEvent switches the probes of an event, if one of them isn't as it is to be.
func (t *feed) turnEvent(x *trigger, on bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var list []*placed
	for _, p := range t.ids {
		if p != nil && !p.removed && t.enabled(p) != on && t.file.Mem[t.file.Layout.Kind(p.id)] == x.kind {
			list = append(list, p)
		}
	}
	if len(list) == 0 || !t.spend(x) {
		return
	}
	turned := false
	for _, p := range list {
		turned = t.producer.Turn(p.id, on) || turned
	}
	if !turned {
		t.giveBack(x)
	}
}

func (t *feed) giveBack(x *trigger) {
	if x.Count > 0 {
		t.producer.GiveBack(x.n)
	}
}

// spend takes one of what is left of a trigger.
func (t *feed) spend(x *trigger) bool { return x.Count == 0 || t.producer.Spend(x.n) }

// mayLeaveTriggers says which trigger can't be left alone with its probes.
func (tg *target) mayLeaveTriggers(out []LeftOut) error {
	for _, t := range tg.s.control.triggers {
		why := ""
		if t.Action == fetch.SetWprobe || t.Action == fetch.ClearWprobe {
			why = "a watchpoint needs a tracer: leave --detach out"
		}
		for i := range out {
			x := &out[i]
			switch {
			case why != "":
			case t.of == x.Event.Group+"/"+x.Event.Name:
				why = fmt.Sprintf("it needs a tracer at %s, where %s: leave --detach out", placeOf(x), x.Why)
			case t.On(x.Event.Group, x.Event.Name):
				why = fmt.Sprintf("%s/%s needs a tracer at %s, where %s: leave --detach out", x.Event.Group, x.Event.Name, placeOf(x), x.Why)
			}
		}
		if why != "" {
			return &TriggerError{t.Trigger, t.Refused(why)}
		}
	}
	return nil
}

func placeOf(x *LeftOut) string {
	if x.Place == "" {
		return "each of its places"
	}
	return x.Place
}

// openGate has detours take hits that nobody traces any more, and look at triggers.
func (tg *target) openGate() error {
	gate := []byte{1, 1} // the gate, and Params.Alive
	if tg.s.control.startsOff {
		gate[0] = 0
	}
	return tg.proc.WriteMemory(gate, tg.area.Gate)
}
