package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/survey"
	"kprobe/probe/triggers"
	"kprobe/symbols"
)

// How a batch is armed
//
// Everything that can fail without touching the process comes first: names are looked up,
// programs compiled, instruction boundaries proved. Then, in this order:
//
//   1. Memory for the copies is mapped (injected system calls).
//   2. The copies are written there, where no thread is yet.
//   3. Each site is entered in the journal, then in the fallback handler's table. So recovery and the fallback handler know each int3 from its first moment on.
//   4. The int3 is written over the instruction's first byte. A store of one byte is atomic: a thread executes either the old instruction or the int3. No thread is stopped for it. All threads are traced already, so no int3 goes unanswered.
//
// If a step fails, the steps before it are undone in reverse and the batch is not armed. A site is
// removed in reverse order, too. First the text gets its byte back. Then the fallback handler's
// table marks the site as retired, because a thread may have trapped and not been seen yet. Then
// the journal entry is removed. The copy stays until no thread can be in it.

// own describes a breakpoint of kprobe's own that is to be written. Exactly one of hook, calls and
// leaves says what it is for. If none is set, calls return there.
type own struct {
	assess.Place
	hook *hook
	// calls says that the instruction is a call whose return address has a breakpoint.
	calls bool
	// leaves is the return probe whose function is left there. outwards says that it is left by a
	// jump to another function; conditional says that only a taken jump leaves.
	leaves                *Placed
	outwards, conditional bool
}

// resolve finds the places of a definition in the target and proves them. named collects the
// places of all definitions of the same change.
func (tg *Target) resolve(d *fetch.Def, ev *Event, named namedPlaces) ([]planner.Request, error) {
	if d.Kind == fetch.Watch {
		return tg.resolveWatch(d, ev)
	}
	places, known := tg.found.take(d, tg.Space)
	var err error
	if !known {
		places, err = away(tg.Engine, func() ([]symbols.Site, error) { return tg.Space.Resolve(d.Place) })
	}
	var unbound *symbols.UnboundIFuncError
	if errors.As(err, &unbound) {
		if impl, ok := tg.chosen[unbound.Resolver]; ok {
			var w symbols.Site
			if w, err = tg.Space.IFuncSite(unbound, impl); err == nil && d.Place.Offset != 0 {
				places, err = tg.Space.Resolve(symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(impl) + uint64(d.Place.Offset)})
			} else {
				places = []symbols.Site{w}
			}
		}
	}
	if err != nil {
		return nil, err
	}
	named.note(d.Place, places)
	if len(d.Except) > 0 {
		if places = tg.except(d, places, named); len(places) == 0 {
			ev.spare.Store(true)
			return nil, nil
		}
	}
	if err := mayHave(len(places)); err != nil {
		return nil, err // too many: none is examined
	}
	glob := d.Place.IsGlob()
	returns := 0
	if d.Kind == fetch.Return {
		returns = len(places)
	}
	defer litter(len(places), returns)()
	defer tg.readAhead(len(places))()
	letIn, letOut := func(symbols.Site) {}, func(symbols.Site) {}
	if d.Kind == fetch.Return && len(places) >= planner.LetGoFrom {
		var stop func()
		letIn, stop = tg.funcs.LeavingAhead(places)
		defer stop()
		letOut = func(w symbols.Site) { tg.funcs[survey.Start(w)].Release() }
	}
	out := &resolved{requests: make([]planner.Request, 0, len(places)), left: len(places)} // most have one request
	var refused error
	left := map[string]int{} // number of places left out, by reason
	var without assess.Partly
	for i, w := range places {
		if err := tg.answer(); err != nil {
			return nil, err
		}
		tg.Engine.progress("checking places", i, len(places))
		letIn(w)
		err := tg.place(d, ev, w, out)
		letOut(w)
		if err != nil {
			if len(places) > 1 && without.Skip(w, err) {
				continue
			}
			var r *survey.RefusedError
			if glob && errors.As(err, &r) {
				refused = err
				if r.Many != "" {
					left[r.Many]++
				}
				tg.Engine.Logf("%v", err)
				continue
			}
			if inside := (*survey.BoundaryError)(nil); glob && errors.As(err, &inside) {
				refused = err
				left["their symbols are inside instructions"]++
				tg.Engine.Logf("%v", err)
				continue
			}
			if w.NamedAs().USDT != nil && len(places) > 1 && errors.As(err, &r) {
				refused = err
				tg.Engine.Warnf("%s: one of %d places is not probed: %v", d.Place, len(places), err)
				continue
			}
			return nil, err
		}
	}
	if len(out.requests) == 0 && without.First != nil {
		return nil, without.First
	}
	if len(out.requests) == 0 && refused != nil {
		return nil, refused
	}
	if without.First != nil {
		tg.Engine.Warnf("%s", without.Warning(d, len(places)))
	}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		tg.Engine.Warnf("%s: %d of %d places are not probed: %s", d.Place, left[why], len(places), why)
	}
	tg.resolveInlined(d, ev, places, out)
	return out.requests, nil
}

// resolved collects the requests of a definition.
type resolved struct {
	requests []planner.Request
	room     []assess.Place // for the next places
	left     int            // how many places may come
}

// placesAtOnce is how many places are in one piece of memory, which is in use as long as one of them is.
const placesAtOnce = 16

// keep keeps a place for requests.
func (x *resolved) keep(at assess.Place) *assess.Place {
	if len(x.room) == 0 {
		x.room = make([]assess.Place, min(placesAtOnce, max(x.left, 1)))
	}
	kept := &x.room[0]
	*kept, x.room = at, x.room[1:]
	x.left--
	return kept
}

// add adds requests.
func (x *resolved) add(ws ...planner.Request) { x.requests = append(x.requests, ws...) }

// place adds the requests of a definition at one place to x.
func (tg *Target) place(d *fetch.Def, ev *Event, w symbols.Site, x *resolved) error {
	proved, err := tg.assessor().Definition(d, w)
	if err != nil {
		return err
	}
	if tg.Engine.Inject != nil {
		if err := tg.mayInject(d, w); err != nil {
			return err
		}
	}
	u := tg.Engine.Owner.HandlersOf(d)
	prog, list, err := tg.program(d, ev, u, w)
	if err != nil {
		return err
	}
	found := x.keep(proved)
	at := &found.Site
	if at.Addr != w.Addr {
		moved := w
		at = &moved
	}
	p := newPlaced(tg, ev, d, planner.Probe{Program: prog, Where: at})
	p.SetRare(planner.RareProbe{Handlers: u.whyTrap(), BreakpointOnly: triggers.NeedTracer(list)})
	if slots := detour.TimeSlots(prog); u != nil || slots != nil || list != nil {
		rare := p.rarer()
		rare.user, rare.timeSlots, rare.triggers = u, slots, list
	}
	if d.Kind != fetch.Return {
		x.add(p.request(found, planner.Entry))
		return nil
	}
	n := d.MaxActive
	if n == 0 {
		n = tg.Engine.maxActive()
	}
	p.Most = int32(n)
	if w.Module.File.IsGo() {
		p.GoABI = true
		f, err := tg.funcs.Of(w)
		if err != nil {
			return &survey.RefusedError{Addr: w.Addr, Place: w.Name(), Rule: fmt.Sprintf("its exits can't be found: %v", err)}
		}
		p.rarer() // there are several requests
		exits, err := planner.OwnExits(tg.exitFinder(), f, w, &p.Probe)
		if err != nil {
			return err
		}
		if p.alone = len(prog.Entry) == 0 && u == nil; p.alone {
			for i := range exits {
				exits[i].Kind = planner.LoneExit
			}
		} else {
			x.add(p.request(found, planner.Return))
		}
		x.add(exits...)
		return nil
	}
	if f, err := tg.funcs.Leaving(w); err == nil {
		p.describeExits(f)
		p.never = !f.Leaving().Returns
	}
	x.add(p.request(found, planner.Return))
	return nil
}

// plainProgram keeps the last compiled program of a definition that fetches nothing.
type plainProgram struct {
	def  *fetch.Def
	prog *fetch.Program
}

// program compiles a definition for one of its places.
func (tg *Target) program(d *fetch.Def, ev *Event, u *Handlers, w symbols.Site) (*fetch.Program, []*triggers.Trigger, error) {
	// A program that fetches nothing is the same at each place, so thousands of places share one.
	same := u == nil && len(d.Args) == 0 && d.Filter == nil && len(tg.Engine.Triggers.List) == 0
	if same && tg.plain.def == d {
		return tg.plain.prog, nil, nil
	}
	env := &assess.Env{Space: tg.Space, Text: tg.Engine.Opts.MaxText, Site: w}
	form, err := u.form(d, env)
	if err != nil {
		return nil, nil, err
	}
	prog, list, err := tg.Engine.compile(form, ev, env)
	if err == nil && same {
		tg.plain.def, tg.plain.prog = d, prog
	}
	return prog, list, err
}

// arm arms all of a batch, or nothing.
func (tg *Target) arm(ctx context.Context, ws []planner.Request) error {
	return tg.change(ctx, &changeset{add: ws})
}

// armOwn arms a breakpoint of kprobe's own.
func (tg *Target) armOwn(ctx context.Context, x own) error {
	return tg.change(ctx, &changeset{own: []own{x}})
}

// makeWay replaces jumps that cover places of kprobe's own breakpoints by breakpoints. If calls
// return to an address under a jump, the jump stays and makeWay returns an error: the caller then
// uses a return trampoline. But if an unwinder is mapped, the jump gives way here, too, because an
// unwinder can't pass a return trampoline.
func (tg *Target) makeWay(ctx context.Context, list []own) error {
	for _, w := range list {
		p := tg.Patches.Covering(w.Site.Addr, int(w.Inst().Len))
		if p == nil {
			continue
		}
		if w.hook == nil && !w.calls && w.leaves == nil && tg.Engine.unwinds.In(tg.Space) == "" {
			return errors.New("a probe's jump is there")
		}
		if err := tg.Unoptimize(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
