package engine

import (
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/ring"
	"kprobe/probe/triggers"
	"kprobe/symbols"
)

// What hits do besides being recorded
//
// A session's limit, end and triggers are checked where a hit is taken: by detours in the
// program (probe/detour, control.go), and by the tracer for breakpoints and watchpoints. Both
// use the same words of the memory file (probe/ring, control.go). Each address space has its
// own.

// timed reports whether time stamps decide about hits.
func (s *Engine) timed() bool { return s.Opts.Limit > 0 || s.Opts.Expire > 0 }

// BindTriggers binds triggers to the events that the session has now, including those of added. An
// added event that triggers switch on before they switch it off begins switched off. undo restores
// the triggers' bindings, for the case that the added events can't be armed.
func (s *Engine) BindTriggers(added []*Definition) (undo func(), err error) {
	if len(s.Triggers.List) == 0 {
		return func() {}, nil
	}
	err = s.Triggers.Known(func() (defs []*fetch.Def) {
		for _, x := range s.Events.Definitions() {
			defs = append(defs, x.Def)
		}
		return defs
	})
	if err != nil {
		return nil, err
	}
	undo = s.Triggers.Begin()
	for _, x := range added {
		if s.Triggers.Bind(x.Ev.Group, x.Ev.Name, x.Def.Kind == fetch.Watch) {
			x.Ev.off.Store(true)
		}
	}
	return undo, nil
}

// compile compiles a definition, and the conditions of its event's triggers.
func (s *Engine) compile(d *fetch.Def, ev *Event, env fetch.Env) (*fetch.Program, []*triggers.Trigger, error) {
	list := s.Triggers.Of(ev.Group + "/" + ev.Name)
	prog, err := triggers.Compile(d, env, list)
	return prog, list, err
}

// layControl initializes the words of the memory file that decide about hits, before the first hit.
func (tg *Target) layControl() error {
	s, f := tg.Engine, tg.Area.File
	l := f.Layout
	tg.Feed.producer.TurnGate(!s.Triggers.StartsOff)
	f.Store64(l.Control.Off+ring.ControlEnd, ^uint64(0))
	for _, t := range s.Triggers.List {
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

// layTimes writes to the memory file how long a second is in time stamps, and at which time stamp
// the run ends, counted from now (Options.Expire).
func (tg *Target) layTimes() error {
	now, rate, err := tg.Feed.rate()
	if err != nil {
		return err
	}
	f := tg.Area.File
	at := f.Layout.Control.Off
	f.Store64(at+ring.ControlRate, ring.RateOf(rate))
	if end := tg.Engine.Opts.Expire; end > 0 {
		f.Store64(at+ring.ControlEnd, now.TSC+ring.TicksIn(uint64(end), rate))
	}
	return nil
}

// gate is the address of the gate: the byte by which triggers switch recording; 0: there is none.
func (tg *Target) gate() symbols.Addr {
	switch {
	case tg.Engine.standsAlone():
		return tg.Area.Gate
	case tg.Engine.Triggers.Gated:
		l := tg.Area.File.Layout
		return tg.Area.File.Addr(l.Control.Off + ring.ControlOn)
	}
	return 0
}

// controlled reports whether a probe's hits do more than being recorded or counted. Counting under a
// gate is more, too.
func (p *Placed) controlled() bool {
	s := p.target.Engine
	return p.user() == nil && (s.timed() || len(p.triggers()) > 0 || s.Triggers.Gated && !s.records(p.user()))
}

// detourControl is what a probe's detours do besides recording; nil: nothing.
func (p *Placed) detourControl() *detour.Control {
	s := p.target.Engine
	if !p.controlled() {
		return nil
	}
	f := p.feed.File
	c := &detour.Control{Ends: s.Opts.Expire > 0}
	if s.Opts.Limit > 0 && s.records(p.user()) {
		c.Most, c.Bucket = s.Opts.Limit, uint64(f.Addr(p.bucket()))
	}
	for i, t := range p.triggers() {
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

// bucket is the offset in the memory file where the hits of the probe's event in the current second
// are counted (Options.Limit).
func (p *Placed) bucket() int64 {
	l := p.feed.File.Layout
	return l.Bucket(p.Ev.bucket % (l.MaxProbes + 1))
}

// on reports whether hits are recorded. Triggers may have switched recording off.
func (t *Feed) on() bool {
	return !t.engine.Triggers.Gated || t.producer.Gate()
}

// expired reports whether the run's end (Options.Expire) has passed at time stamp tsc. If so, it
// switches all probes off.
func (t *Feed) expired(tsc uint64) bool {
	if t.engine.Opts.Expire == 0 || tsc < t.File.Load64(t.File.Layout.Control.Off+ring.ControlEnd) {
		return false
	}
	t.File.Store64(t.File.Layout.Control.Off+ring.ControlOver, 1)
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.Ids {
		if p != nil {
			t.setFlags(p, 0, ring.FlagEnabled)
		}
	}
	return true
}

// limited reports whether a hit at time stamp tsc exceeds Options.Limit of its event's hits in a
// second. If not, the hit is counted.
func (t *Feed) limited(p *Placed, tsc uint64) bool {
	rate := t.File.Load64(t.File.Layout.Control.Off + ring.ControlRate)
	return t.engine.Opts.Limit > 0 && p.user() == nil && t.engine.records(p.user()) && !t.producer.Take(p.bucket(), tsc, rate, t.engine.Opts.Limit)
}

// before carries out the triggers that act before a hit is recorded. The session's context is that
// of the hit.
func (s *Engine) before(p *Placed, rec []byte) {
	for i, t := range p.triggers() {
		if t.Action == fetch.TraceOn && p.Program.Holds(i, &s.ctx, rec) {
			p.feed.turnGate(t, true)
		}
	}
}

// withStack appends the stack to a hit's record if a trigger asks for it.
func (s *Engine) withStack(p *Placed, rec []byte) []byte {
	if p.Program.Stack == nil || p.Program.Stack.Mark == 0 {
		return rec
	}
	for i, t := range p.triggers() {
		if t.Action == fetch.Stacktrace && p.Program.Holds(i, &s.ctx, rec) && p.feed.spend(t) {
			return p.Program.AppendStack(&s.ctx, rec)
		}
	}
	return rec
}

// after carries out the triggers that act after a hit is recorded.
func (s *Engine) after(p *Placed, rec []byte) {
	for i, t := range p.triggers() {
		if t.Action == fetch.TraceOn || !p.Program.Holds(i, &s.ctx, rec) {
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

// turnGate opens or shuts the gate. If it is so already, the trigger's count stays.
func (t *Feed) turnGate(x *triggers.Trigger, on bool) {
	if t.producer.Gate() != on && t.spend(x) && !t.producer.TurnGate(on) {
		t.giveBack(x)
	}
}

// turnEvent switches the probes of the trigger's event on or off. If all are so already, the
// trigger's count stays.
func (t *Feed) turnEvent(x *triggers.Trigger, on bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var list []*Placed
	for _, p := range t.Ids {
		if p != nil && !p.removed && t.enabled(p) != on && t.File.Mem[t.File.Layout.Kind(p.Id)] == x.Kind {
			list = append(list, p)
		}
	}
	if len(list) == 0 || !t.spend(x) {
		return
	}
	turned := false
	for _, p := range list {
		turned = t.producer.Turn(p.Id, on) || turned
	}
	if !turned {
		t.giveBack(x)
	}
}

func (t *Feed) giveBack(x *triggers.Trigger) {
	if x.Count > 0 {
		t.producer.GiveBack(x.N)
	}
}

// spend counts a trigger down by one, and reports whether it may act.
func (t *Feed) spend(x *triggers.Trigger) bool { return x.Count == 0 || t.producer.Spend(x.N) }

// MayLeaveTriggers returns a *triggers.Error for a trigger that can't be left alone with its probes;
// nil if all can. out lists the probes that can't be left alone.
func (tg *Target) MayLeaveTriggers(out []LeftOut) error {
	for _, t := range tg.Engine.Triggers.List {
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
			return &triggers.Error{Trigger: t.Trigger, Err: t.Refused(why)}
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

// openGate makes the detours of a process that is about to be left take hits and carry out triggers.
func (tg *Target) openGate() error {
	gate := []byte{1, 1} // the gate, and Params.Alive
	if tg.Engine.Triggers.StartsOff {
		gate[0] = 0
	}
	return tg.Proc.WriteMemory(gate, tg.Area.Gate)
}
