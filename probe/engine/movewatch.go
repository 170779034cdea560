package engine

import (
	"errors"

	"kprobe/fetch"
	"kprobe/probe/tracee"
	"kprobe/probe/triggers"
	"kprobe/symbols"
)

// Watchpoints that triggers move
//
// A watchpoint that watches nothing (rw@-1) gets an address from the trigger set_wprobe at a hit of
// another event, and loses it by clear_wprobe. An example is a field of an object, watched from the
// constructor's return to the destructor. Events with such triggers are breakpoints: the thread
// stays stopped until every thread's debug registers are set, so that no later access is missed.
// While the watchpoint has an address, set_wprobe doesn't change it, as in the kernel.

// moveWatch carries out set_wprobe or clear_wprobe at a hit of p with the record rec: it sets or
// clears the address of the trigger's watchpoints.
func (tg *Target) moveWatch(p *Placed, t *triggers.Trigger, rec []byte) {
	tg = tg.main
	const nothing = symbols.Addr(symbols.NoData)
	at := nothing
	if t.Field != "" {
		v, ok := p.Program.Number(p.Program.Scalar(t.Field), rec)
		if !ok {
			return // it couldn't be read
		}
		at = symbols.Addr(v + uint64(t.Offset))
	}
	for w := range tg.apart {
		if w.data() == nil || t.Watches != w.Ev.Group+"/"+w.Ev.Name {
			continue
		}
		now, next := w.data().at, at
		switch {
		case t.Action == fetch.SetWprobe && now != nothing,
			t.Action == fetch.ClearWprobe && (now == nothing || t.Field != "" && now != at):
			continue
		case t.Action == fetch.SetWprobe && uint64(at)%uint64(w.data().length) != 0:
			tg.Engine.Warnf("%s/%s watches nothing: %v is no multiple of %d, its length", w.Ev.Group, w.Ev.Name, at, w.data().length)
			continue
		case !p.feed.spend(t):
			continue
		case t.Action == fetch.ClearWprobe:
			next = nothing
		}
		if err := tg.watchAt(w, next); err != nil {
			tg.Engine.Warnf("%s/%s watches nothing: %v", w.Ev.Group, w.Ev.Name, err)
		}
	}
}

// watchAt sets the address that a watchpoint watches; symbols.NoData: none.
func (tg *Target) watchAt(w *Placed, at symbols.Addr) error {
	w.data().at, w.data().known = at, false
	next, err := assign(tg.Registers.Slots, tg.watchers(nil, nil))
	if err == nil {
		err = tg.setWatches(tg.Engine.Run, next)
	}
	if errors.Is(err, tracee.ErrGone) {
		return nil
	}
	if err != nil {
		w.data().at = symbols.Addr(symbols.NoData)
	}
	return err
}
