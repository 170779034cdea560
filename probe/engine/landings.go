package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// Calls that are seen again where they return to
//
// A counted call that has jumped to unknown code is seen again at its return address
// (detour.Landing). The first call that returns to an address traps at its jump
// (followOnward), and two probes of an event that is shown to nobody are laid for it: at that
// address, and at the call instruction before it. From then on the jump's detour finds the
// address in a set, and such a call costs no stop.
//
//	coming  while the probes are laid no other stop is answered: there is only one of them. While
//	        another change's detours are written none is laid, and the call is missed
//	laid    jumps, or breakpoints, at which the tracer does what the detours would
//	noted   the address is in the set: calls don't trap any more
//	gone    with the last probe whose calls the table holds: out of the set first
//
// Where none can be laid the call is missed. In particular nothing is written into the stack of
// code that is made at run time: its runtime looks return addresses up. Only if few probes are
// counted, breakpoints follow such a call, as they follow one of a probe that is no jump.

// landing is a return address where counted calls are seen again.
type landing struct {
	calls  detour.Calls
	set    *detour.Noting // that jumps look into
	placed []*Placed      // none: it can't be watched
}

// landingKey tells them apart.
type landingKey struct {
	ra    symbols.Addr
	table uint64
}

// landing sees that the calls of a way that return to ra are seen there; nil: they aren't.
func (tg *Target) landing(x *planner.ExitWay, t *detour.Tally, ra symbols.Addr) *landing {
	k := landingKey{ra, x.Calls().Addr}
	l := tg.landings[k]
	if l != nil && len(l.placed) > 0 && !tg.Placed[l.placed[0]] {
		l = nil // it went with what was removed
	}
	if l == nil && tg.building {
		return nil // its detours would lie where the others' will
	}
	if l == nil {
		l = &landing{calls: x.Calls(), set: x.Landings()}
		if err := tg.layLanding(l, t, ra); err != nil {
			l.placed = nil
			tg.Engine.Logf("calls that jump to unknown code and return to %v are missed: %v", ra, err)
		}
		tg.landings[k] = l
	}
	if len(l.placed) == 0 {
		return nil
	}
	if i := l.set.Put(uint64(ra)); i >= 0 {
		tg.writeEntries(l.set, []int{i})
	}
	return l
}

// layLanding lays the probes of a landing.
func (tg *Target) layLanding(l *landing, t *detour.Tally, ra symbols.Addr) error {
	w, err := tg.placeOf(ra)
	if err != nil {
		return err
	}
	fn, ok := w.Module.File.FuncAt(w.Vaddr)
	if !ok {
		return errors.New("no function is known there")
	}
	w.Func, w.Offset = &fn, uint64(w.Vaddr-fn.Start)
	at, err := tg.prove(w)
	if err != nil {
		return err
	}
	lands := detour.Landing{Tally: t, Return: uint64(ra), Wide: movesReturns(fn.Symbol.Name)}
	first, err := tg.landingRequest(l, at, lands)
	if err != nil {
		return err
	}
	ws := []planner.Request{first}
	if call, ok := tg.callBefore(ra); ok {
		lands.Over = true
		w, err := tg.landingRequest(l, call, lands)
		if err != nil {
			return err
		}
		ws = append(ws, w)
	}
	// A stop that were answered meanwhile might ask for the same.
	tg.Engine.Answers.off++
	defer func() { tg.Engine.Answers.off-- }()
	if err := tg.change(context.WithoutCancel(tg.Engine.Run), &changeset{add: ws}); err != nil {
		return err
	}
	for _, w := range ws {
		p := PlacedOf(w)
		p.feed.leave(p, true) // nobody is shown it
		l.placed = append(l.placed, p)
		if !p.Tactic.Jump() {
			tg.Engine.Logf("calls that return to %v trap at %s: %s", ra, w.Site.Name(), p.Why)
		}
	}
	return nil
}

// movesReturns reports whether functions that one calls may take their arguments off the stack,
// however many these are, or move their return address: those of V8 do.
func movesReturns(caller string) bool { return strings.HasPrefix(caller, "Builtins_") }

// landingRequest makes the probe of one side of a landing.
func (tg *Target) landingRequest(l *landing, at assess.Place, x detour.Landing) (w planner.Request, err error) {
	def, err := fetch.Parse(fmt.Sprintf("p:kprobe/landings %#x", uint64(at.Site.Addr)))
	if err != nil {
		return w, err
	}
	prog, err := def.Compile(&assess.Env{Space: tg.Space, Text: tg.Engine.Opts.MaxText, Site: at.Site})
	if err != nil {
		return w, err
	}
	ev := &Event{Event: results.Event{Def: def, Group: "kprobe", Name: "landings"}, count: true}
	p := newPlaced(tg, ev, def, planner.Probe{Program: prog, Where: &at.Site, Rare: &planner.RareProbe{Landing: &x}})
	p.rarer().lands = l
	return planner.Request{Place: &at, P: &p.Probe, Kind: planner.Entry}, nil
}

// tallyFor is the tally by which calls of a way may be seen where they return to; nil is none.
func (tg *Target) tallyFor(x *planner.ExitWay) (t *detour.Tally) {
	if x.Landings() == nil || tg.Params == nil || tg.Params.Gate != 0 {
		return nil
	}
	calls := x.Calls()
	for _, y := range tg.Area.Tallies {
		if y.Lands(&calls) {
			t = y
		}
	}
	return t
}

// land does what the detour of a landing does. The session's context is filled.
func (s *Engine) land(tg *Target, p *Placed) {
	l, k := p.Rarely().Landing, p.lands().calls
	for i := range l.Slots() {
		slot := s.regs.GPR[fetch.SP] - 8*uint64(i+1)
		mem := tg.callsOf(k, slot)
		if mem == nil {
			return
		}
		for _, in := range k.With(mem, slot) {
			if in.Return != l.Return {
				continue
			}
			if l.Over {
				tg.freeCall(k, in.Number)
				continue
			}
			if word, err := tg.word(symbols.Addr(slot)); !l.Wide && err == nil && word != in.Return {
				continue // a jump has come here
			}
			if !l.Wide && !k.PassesOn(mem, in.Number) {
				tg.freeCall(k, in.Number) // an exception has left it
				continue
			}
			for _, id := range k.OwnersOf(mem, in.Number) {
				q := tg.probeOf(id)
				if q == nil || q.ByExits == nil || !q.ByExits.Anywhere {
					continue
				}
				was := s.regs
				s.regs.IP = in.Real
				s.record(q, k.Entry(mem, in.Number)[:q.Program.EntrySize()], symbols.Addr(in.Real))
				s.regs = was
				tg.endCall(k, mem, in.Number, id)
			}
		}
	}
}

// dropLandings adds to a change the landings that it leaves without a call to see.
func (tg *Target) dropLandings(c *changeset) {
	if len(tg.landings) == 0 || len(c.drop) == 0 {
		return
	}
	used := map[uint64]bool{}
	for p := range tg.Placed {
		if p.ByExits != nil && !c.drop[p] {
			used[p.ByExits.Calls().Addr] = true
		}
	}
	drop := maps.Clone(c.drop)
	for k, l := range tg.landings {
		if used[k.table] {
			continue
		}
		tg.unnoteLanding(l, k.ra)
		for _, p := range l.placed {
			if tg.Placed[p] {
				drop[p] = true
			}
		}
		if len(l.placed) == 0 {
			delete(tg.landings, k)
		}
	}
	c.drop = drop
}

// unnoteLanding takes an address out of the set.
func (tg *Target) unnoteLanding(l *landing, ra symbols.Addr) {
	if i := l.set.Drop(uint64(ra)); i >= 0 {
		tg.writeEntries(l.set, []int{i})
	}
}

// landingUnloaded forgets one side of a landing whose module is gone.
func (tg *Target) landingUnloaded(p *Placed) {
	tg.unnoteLanding(p.lands(), symbols.Addr(p.Rarely().Landing.Return))
	tg.Retired.add(&retired{probes: []*Placed{p}})
}
