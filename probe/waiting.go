package probe

import (
	"slices"

	"kprobe/probe/ring"
)

// Definitions that wait for their library have a number in the memory file, so
// that other kprobes see them, and can switch them off and remove them: a
// descriptor without an address, marked as gone. It has no code and no hits.

// showWaiting shows what waits in the target. A definition whose library was
// there before is seen by the places that it had.
func (tg *target) showWaiting() {
	if tg.feed == nil || !tg.isMain() {
		return
	}
	var list []*defOf
	tg.feed.expects.Store(!tg.loads() && len(tg.pending) > 0)
	if !tg.loads() {
		gone := make(map[defKey]bool, len(tg.gone))
		for p := range tg.gone {
			gone[p.key()] = true
		}
		for _, p := range tg.pending {
			if !p.more && !gone[p.key()] {
				list = append(list, p.defOf)
			}
		}
	}
	if err := tg.feed.wait(list); err != nil {
		tg.s.logf("what waits in process %d is not listed: %v", tg.proc.PID(), err)
	}
}

// wait shows these definitions as waiting, and no others.
func (t *feed) wait(list []*defOf) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	stays := make(map[*defOf]bool, len(list))
	for _, x := range list {
		stays[x] = true
	}
	for x, id := range t.waiting {
		if stays[x] {
			continue
		}
		x.ev.waits(t, id, false)
		t.file.Store32(t.file.Layout.Probe(id), 0)
		t.ids[id-1] = nil
		t.spare = append(t.spare, id)
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
		if !x.ev.off.Load() {
			flags |= ring.FlagEnabled
		}
		if x.ev.Return {
			flags |= ring.FlagReturn
		}
		t.describe(ring.Probe{ID: id, Name: x.ev.Group + "/" + x.ev.Name, Armed: t.s.clock.now()}, flags)
		if t.waiting == nil {
			t.waiting = map[*defOf]uint32{}
		}
		t.waiting[x] = id
		x.ev.waits(t, id, true)
	}
	return nil
}

// waitsOff reports whether a place is of a definition that was switched off
// while it waited. The lock is held.
func (t *feed) waitsOff(p *placed) bool {
	for x, id := range t.waiting {
		if x.def == p.def && x.ev == p.ev {
			return t.file.Load32(t.file.Layout.Flag(id))&ring.FlagEnabled == 0
		}
	}
	return false
}

// waits notes the number by which the event waits in a target, or that it waits
// there no longer.
func (e *event) waits(t *feed, id uint32, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if on {
		e.waiting = append(e.waiting, waitingAt{t, id})
	} else {
		e.waiting = slices.DeleteFunc(e.waiting, func(w waitingAt) bool { return w == waitingAt{t, id} })
	}
}

// waitingAt is a number by which an event waits in a target.
type waitingAt struct {
	feed *feed
	id   uint32
}

// turn switches what waits on or off.
func (w waitingAt) turn(on bool) {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	at := &w.feed.file.Mem[w.feed.file.Layout.Flag(w.id)]
	*at &^= ring.FlagEnabled
	if on {
		*at |= ring.FlagEnabled
	}
}
