package probe

import (
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/ring"
	"kprobe/probe/triggers"
	"kprobe/symbols"
)

// What is done at hits besides recording them
//
// A session's limit, its end and its triggers are looked at where a hit is taken: by
// detours in the program (probe/detour, control.go), by the tracer for breakpoints and
// watchpoints, over the same words of the memory file (probe/ring, control.go). Each
// address space has words of its own.

// timed reports whether time stamps decide about hits.
func (s *engine) timed() bool { return s.opts.Limit > 0 || s.opts.Expire > 0 }

// bindTriggers finds the events of triggers among those that the session has now. An
// event that is to be switched on before it is switched off begins switched off. undo
// has them be as they were, for events that don't come to be.
func (s *engine) bindTriggers(added []*defOf) (undo func(), err error) {
	if len(s.triggers.List) == 0 {
		return func() {}, nil
	}
	err = s.triggers.Known(func() (defs []*fetch.Def) {
		for _, x := range s.definitions() {
			defs = append(defs, x.def)
		}
		return defs
	})
	if err != nil {
		return nil, err
	}
	undo = s.triggers.Begin()
	for _, x := range added {
		if s.triggers.Bind(x.ev.Group, x.ev.Name, x.def.Kind == fetch.Watch) {
			x.ev.off.Store(true)
		}
	}
	return undo, nil
}

// compile compiles a definition, and the conditions of its event's triggers.
func (s *engine) compile(d *fetch.Def, ev *event, env fetch.Env) (*fetch.Program, []*triggers.Trigger, error) {
	list := s.triggers.Of(ev.Group + "/" + ev.Name)
	prog, err := triggers.Compile(d, env, list)
	return prog, list, err
}

// layControl lays the words down that decide about hits, before there is any.
func (tg *target) layControl() error {
	s, f := tg.s, tg.area.File
	l := f.Layout
	tg.feed.producer.TurnGate(!s.triggers.StartsOff)
	f.Store64(l.Control.Off+ring.ControlEnd, ^uint64(0))
	for _, t := range s.triggers.List {
		left := t.Count
		if left == 0 {
			left = ^uint64(0)
		}
		f.Store64(l.Trigger(t.N), left)
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
	case tg.s.standsAlone():
		return tg.area.Gate
	case tg.s.triggers.Gated:
		l := tg.area.File.Layout
		return tg.area.File.Addr(l.Control.Off + ring.ControlOn)
	}
	return 0
}

// controlled reports whether more is to be done at a probe's hits than to record or to
// count them. Where a gate is looked at, counting is.
func (p *placed) controlled() bool {
	s := p.target.s
	return p.user == nil && (s.timed() || len(p.triggers) > 0 || s.triggers.Gated && !s.records(p.user))
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
		x := detour.Trigger{Action: t.Action, Condition: i, Kind: t.Kind}
		if t.Count > 0 {
			x.Left = uint64(f.Addr(f.Layout.Trigger(t.N)))
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
	return !t.s.triggers.Gated || t.producer.Gate()
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
func (s *engine) before(p *placed, rec []byte) {
	for i, t := range p.triggers {
		if t.Action == fetch.TraceOn && p.prog.Holds(i, &s.ctx, rec) {
			p.feed.turnGate(t, true)
		}
	}
}

// withStack gives the record of a hit the stack, if a trigger says so.
func (s *engine) withStack(p *placed, rec []byte) []byte {
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
func (s *engine) after(p *placed, rec []byte) {
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
func (t *feed) turnGate(x *triggers.Trigger, on bool) {
	if t.producer.Gate() != on && t.spend(x) && !t.producer.TurnGate(on) {
		t.giveBack(x)
	}
}

// turnEvent switches the probes of an event, if one of them isn't as it is to be.
func (t *feed) turnEvent(x *triggers.Trigger, on bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var list []*placed
	for _, p := range t.ids {
		if p != nil && !p.removed && t.enabled(p) != on && t.file.Mem[t.file.Layout.Kind(p.id)] == x.Kind {
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

func (t *feed) giveBack(x *triggers.Trigger) {
	if x.Count > 0 {
		t.producer.GiveBack(x.N)
	}
}

// spend takes one of what is left of a trigger.
func (t *feed) spend(x *triggers.Trigger) bool { return x.Count == 0 || t.producer.Spend(x.N) }

// mayLeaveTriggers says which trigger can't be left alone with its probes.
func (tg *target) mayLeaveTriggers(out []LeftOut) error {
	for _, t := range tg.s.triggers.List {
		why := ""
		if t.MovesWatch() {
			why = "a watchpoint needs a tracer: leave --detach out"
		}
		for i := range out {
			x := &out[i]
			switch {
			case why != "":
			case t.At == x.Event.Group+"/"+x.Event.Name:
				why = fmt.Sprintf("it needs a tracer at %s, where %s: leave --detach out", placeOf(x), x.Why)
			case t.On(x.Event.Group, x.Event.Name):
				why = fmt.Sprintf("%s/%s needs a tracer at %s, where %s: leave --detach out", x.Event.Group, x.Event.Name, placeOf(x), x.Why)
			}
		}
		if why != "" {
			return &TriggerError{Trigger: t.Trigger, Err: t.Refused(why)}
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
	if tg.s.triggers.StartsOff {
		gate[0] = 0
	}
	return tg.proc.WriteMemory(gate, tg.area.Gate)
}
