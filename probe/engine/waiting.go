package engine

import (
	"slices"

	"kprobe/probe/ring"
)

// A definition that waits for its library has a number and a descriptor in the memory file, so that
// other kprobes can list it, switch it off and remove it. The descriptor has no address and is
// marked as gone. It has no code and no hits.

// showWaiting writes descriptors for the waiting definitions. A definition whose library was unloaded
// needs none: the descriptors of its gone probes stay.
func (tg *Target) showWaiting() {
	if tg.Feed == nil || !tg.IsMain() {
		return
	}
	var list []*Definition
	tg.Feed.expects.Store(!tg.loads() && len(tg.awaited.defs) > 0)
	if !tg.loads() {
		list = tg.awaited.unseen()
	}
	if err := tg.Feed.wait(list); err != nil {
		tg.Engine.Logf("what waits in process %d is not listed: %v", tg.Proc.PID(), err)
	}
}

// wait makes these definitions, and no others, have descriptors as waiting ones.
func (t *Feed) wait(list []*Definition) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	stays := make(map[*Definition]bool, len(list))
	for _, x := range list {
		stays[x] = true
	}
	for x, id := range t.waiting {
		if stays[x] {
			continue
		}
		x.Ev.waits(t, id, false)
		t.identify(id, 0)
		t.Ids[id-1] = nil
		t.Spare = append(t.Spare, id)
		delete(t.waiting, x)
		t.changed()
	}
	for _, x := range list {
		if _, ok := t.waiting[x]; ok {
			continue
		}
		id, err := t.number(nil)
		if err != nil {
			return err
		}
		flags := uint32(ring.FlagGone)
		if !x.Ev.off.Load() {
			flags |= ring.FlagEnabled
		}
		if x.Ev.Return {
			flags |= ring.FlagReturn
		}
		t.describe(ring.Probe{ID: id, Name: x.Ev.Group + "/" + x.Ev.Name, Armed: t.engine.clock.Now()}, flags)
		if t.waiting == nil {
			t.waiting = map[*Definition]uint32{}
		}
		t.waiting[x] = id
		x.Ev.waits(t, id, true)
	}
	return nil
}

// waitsOff reports whether the probe's definition was switched off while it waited. The lock is held.
func (t *Feed) waitsOff(p *Placed) bool {
	for x, id := range t.waiting {
		if x.Def == p.Def && x.Ev == p.Ev {
			return t.File.Load32(t.File.Layout.Flag(id))&ring.FlagEnabled == 0
		}
	}
	return false
}

// waits notes the number with which the event waits in a target, or, if on is false, that it waits
// there no longer.
func (e *Event) waits(t *Feed, id uint32, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if on {
		e.waiting = append(e.waiting, waitingAt{t, id})
	} else {
		e.waiting = slices.DeleteFunc(e.waiting, func(w waitingAt) bool { return w == waitingAt{t, id} })
	}
}

// waitingAt is the number with which an event waits in a target.
type waitingAt struct {
	feed *Feed
	id   uint32
}

// turn switches a waiting definition on or off.
func (w waitingAt) turn(on bool) {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	at := &w.feed.File.Mem[w.feed.File.Layout.Flag(w.id)]
	*at &^= ring.FlagEnabled
	if on {
		*at |= ring.FlagEnabled
	}
}
