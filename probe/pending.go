package probe

import (
	"context"
	"errors"
	"slices"

	"kprobe/symbols"
)

// pendingDef is a definition that waits for its file.
type pendingDef struct {
	*defOf
	err  error // why it could not be armed when it was last tried
	said bool  // the user was told
	// more says that it is armed, and has places yet to come, in another copy of
	// its library.
	more bool
	// constructor is where it waits for the library's thread-local blocks.
	constructor symbols.Addr
}

// mayWait reports whether a definition that has no place yet may wait for its
// library.
func (tg *target) mayWait(d *defOf, err error) bool {
	return errors.Is(err, symbols.ErrNotMapped) && d.def.Place.Module != "" &&
		(d.waits || tg.s.opts.Pending != nil && tg.s.opts.Pending(d.def))
}

// readyDef is a definition whose library has come, with its places.
type readyDef struct {
	*pendingDef
	ws []patchRequest
}

// stillWaits notes why a definition can't be armed. If its library is there,
// that it waits is no answer any more: the user is told, once.
func (tg *target) stillWaits(p *pendingDef, err error) {
	p.err = err
	var unbound *symbols.UnboundIFuncError
	if !tg.loads() && !p.said && p.def.Place.Module != "" && !errors.Is(err, symbols.ErrNotMapped) && !errors.As(err, &unbound) {
		p.said = true
		tg.s.warnf("%v", &DefError{Def: p.def, Err: err})
	}
}

// tryPending arms the waiting definitions whose files are mapped now.
func (tg *target) tryPending(ctx context.Context) error {
	if len(tg.pending) == 0 {
		return nil
	}
	if err := tg.space.Refresh(); err != nil {
		return err
	}
	rest := tg.pending[:0]
	armed, gone := placedByDef(tg.placed), placedByDef(tg.gone)
	var ready []readyDef
	var batch []patchRequest
	for _, p := range tg.pending {
		ws, err := tg.resolve(p.def, p.ev)
		var unbound *symbols.UnboundIFuncError
		if errors.As(err, &unbound) {
			if tg.load == nil {
				tg.load = &loading{entered: true}
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
	// All at once: one change of the text, not one for each.
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
			tg.s.logf("%s/%s is armed: process %d has loaded its library", p.ev.Group, p.ev.Name, tg.proc.PID())
		}
	}
	tg.pending = rest
	tg.showWaiting()
	return nil
}

// expectCopies has definitions that are armed wait for the places that they have
// in a further copy of their library. before are the modules that there were.
func (tg *target) expectCopies(before []*symbols.Module) {
	fresh := func(m *symbols.Module) bool { return !slices.Contains(before, m) }
	if !slices.ContainsFunc(tg.space.Modules(), fresh) {
		return
	}
	waits := tg.waiting()
	for _, x := range tg.s.definitions() {
		if name := x.def.Place.Module; name != "" && !waits[x.key()] && slices.ContainsFunc(tg.space.FindModule(name), fresh) {
			tg.pending = append(tg.pending, &pendingDef{defOf: x, more: true})
		}
	}
}

// waiting is the set of the definitions that wait.
func (tg *target) waiting() map[defKey]bool {
	out := make(map[defKey]bool, len(tg.pending))
	for _, p := range tg.pending {
		out[p.key()] = true
	}
	return out
}

// placedByDef gives the places that definitions have.
func placedByDef(all map[*placed]bool) map[defKey][]*placed {
	out := map[defKey][]*placed{}
	for p := range all {
		out[p.key()] = append(out[p.key()], p)
	}
	return out
}

// unarmed leaves out what is armed already: a definition may have places in
// several libraries, of which one came.
func unarmed(armed []*placed, ws []patchRequest) []patchRequest {
	at := map[symbols.Addr]bool{}
	for _, p := range armed {
		at[p.where.Addr] = true
	}
	return slices.DeleteFunc(ws, func(w patchRequest) bool { return at[w.p.where.Addr] })
}

// returned gives up the places of a definition that were gone, since it is armed
// anew. A definition all of whose places were switched off stays off.
func (tg *target) returned(ws []patchRequest, armed, gone []*placed) {
	off, n := true, 0
	was := func(p *placed) {
		n++
		off = off && p.feed.disabled(p)
	}
	for _, p := range gone {
		if tg.gone[p] {
			was(p)
			tg.forget(p)
		}
	}
	for _, p := range armed {
		if tg.placed[p] {
			was(p)
		}
	}
	if n > 0 && off {
		for _, w := range ws {
			w.p.feed.turn(w.p, false)
		}
	}
}

// forget gives up a place that was gone.
func (tg *target) forget(p *placed) {
	delete(tg.gone, p)
	p.feed.leave(p, true)
	tg.retired = append(tg.retired, &retired{probes: []*placed{p}})
}
