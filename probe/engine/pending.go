package engine

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"kprobe/probe/assess"
	"kprobe/probe/planner"
	"kprobe/symbols"
)

// mayWait reports whether a definition may wait for its library. err is the error of resolving it.
func (tg *Target) mayWait(d *Definition, err error) bool {
	return errors.Is(err, symbols.ErrNotMapped) && d.Def.Place.Module != "" &&
		(d.Waits || tg.Engine.Opts.Pending != nil && tg.Engine.Opts.Pending(d.Def))
}

// readyDef is a waiting definition whose library is mapped now, with its places.
type readyDef struct {
	*pendingDef
	ws []planner.Request
}

// stillWaits notes why a waiting definition can't be armed. If the reason is neither that its library is
// missing nor that the trace ends, the user is warned, once.
func (tg *Target) stillWaits(p *pendingDef, err error) {
	p.err = err
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	var unbound *symbols.UnboundIFuncError
	if !tg.loads() && !p.said && p.Def.Place.Module != "" && !errors.Is(err, symbols.ErrNotMapped) && !errors.As(err, &unbound) {
		p.said = true
		tg.Engine.Warnf("%v", &assess.DefError{Def: p.Def, Err: err})
	}
}

// tryPending arms the waiting definitions whose files are mapped now.
func (tg *Target) tryPending(ctx context.Context) error {
	if len(tg.awaited.defs) == 0 {
		return nil
	}
	if err := tg.Space.Refresh(); err != nil {
		return err
	}
	rest := tg.awaited.defs[:0]
	armed, gone := byDef(maps.Keys(tg.Placed)), tg.awaited.goneByDef()
	var ready []readyDef
	var batch []planner.Request
	named := newNamedPlaces(tg.awaited.definitions())
	for _, p := range tg.awaited.defs {
		ws, err := tg.resolve(p.Def, p.Ev, named)
		var unbound *symbols.UnboundIFuncError
		if errors.As(err, &unbound) {
			if tg.Load == nil {
				tg.Load = &Loading{entered: true}
			}
			if err = tg.watchResolver(ctx, unbound.Resolver); err == nil {
				err = unbound
			}
		}
		if err == nil {
			ws = unarmed(armed[p.key()], ws)
			ready = append(ready, readyDef{p, ws})
			batch = append(batch, ws...)
			continue
		}
		if tg.waitForBlock(ctx, p, err) {
			p.err = err
		} else {
			tg.stillWaits(p, err)
		}
		if !p.more || errors.As(err, &unbound) {
			rest = append(rest, p)
		}
	}
	// Arm all in one change of the text. If that fails, arm each by itself.
	together := tg.arm(ctx, batch)
	for _, r := range ready {
		p, ws, err := r.pendingDef, r.ws, together
		if err != nil {
			err = tg.arm(ctx, ws)
		}
		if err != nil {
			tg.stillWaits(p, err)
			if !p.more {
				rest = append(rest, p)
			}
			continue
		}
		tg.returned(ws, armed[p.key()], gone[p.key()])
		if !tg.loads() {
			tg.Engine.Logf("%s/%s is armed: process %d has loaded its library", p.Ev.Group, p.Ev.Name, tg.Proc.PID())
		}
	}
	tg.awaited.defs = rest
	tg.showWaiting()
	return nil
}

// expectCopies makes armed definitions wait for places in a further copy of their library, if one was
// mapped. before are the modules before the change.
func (tg *Target) expectCopies(before []*symbols.Module) {
	fresh := func(m *symbols.Module) bool { return !slices.Contains(before, m) }
	if !slices.ContainsFunc(tg.Space.Modules(), fresh) {
		return
	}
	waits := tg.awaited.keys()
	for _, x := range tg.Engine.Events.Definitions() {
		if name := x.Def.Place.Module; name != "" && !waits[x.key()] && slices.ContainsFunc(tg.Space.FindModules(name), fresh) {
			tg.awaited.add(&pendingDef{Definition: x, more: true})
		}
	}
}

// byDef groups probes by their definitions.
func byDef(all iter.Seq[*Placed]) map[defKey][]*Placed {
	out := map[defKey][]*Placed{}
	for p := range all {
		out[p.key()] = append(out[p.key()], p)
	}
	return out
}

// unarmed removes the requests whose places are armed already. A definition may have places in several
// libraries, and only one of them was mapped now.
func unarmed(armed []*Placed, ws []planner.Request) []planner.Request {
	at := map[symbols.Addr]bool{}
	for _, p := range armed {
		at[p.Where.Addr] = true
	}
	return slices.DeleteFunc(ws, func(w planner.Request) bool { return at[w.P.Where.Addr] })
}

// returned forgets the gone probes of a definition that was armed again. ws are its new requests, armed
// and gone its earlier probes. If all of these were switched off, the new ones are, too.
func (tg *Target) returned(ws []planner.Request, armed, gone []*Placed) {
	off, n := true, 0
	was := func(p *Placed) {
		n++
		off = off && p.feed.disabled(p)
	}
	for _, p := range gone {
		if tg.awaited.gone[p] {
			was(p)
			tg.forget(p)
		}
	}
	for _, p := range armed {
		if tg.Placed[p] {
			was(p)
		}
	}
	if n > 0 && off {
		for _, w := range ws {
			PlacedOf(w).feed.turn(PlacedOf(w), false)
		}
	}
}

// forget retires a probe whose library was unloaded.
func (tg *Target) forget(p *Placed) {
	delete(tg.awaited.gone, p)
	p.feed.leave(p, true)
	tg.Retired.add(&retired{probes: []*Placed{p}})
}
