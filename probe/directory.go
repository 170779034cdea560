package probe

import (
	"encoding/binary"
	"fmt"

	"kprobe/probe/plan"
	"kprobe/probe/ring"
)

// The directory of a memory file
//
// Each probe of a process has a number, by which its records and counters are known, a
// descriptor for other kprobes, and flags that detours read: whether hits are taken.

// add gives a probe its id and its descriptor, enabled unless its event is off.
func (t *feed) add(p *placed) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, err := t.number(p)
	if err != nil {
		return err
	}
	p.id = id
	t.seq++
	p.feed, p.seq, p.removed = t, t.seq, false
	t.giveRow(p)
	if p.keepAs = p.kept(); p.keepAs == nil {
		t.unkept.Add(1)
	}
	t.generation.Add(1)
	flags := uint32(ring.FlagEnabled)
	if p.ev.off.Load() || t.waitsOff(p) {
		flags = 0
	}
	if p.ev.Return {
		flags |= ring.FlagReturn
	}
	if !t.s.records(p.user) {
		flags |= ring.FlagCountOnly
	}
	d := ring.Probe{ID: p.id, Name: p.ev.Group + "/" + p.ev.Name, Addr: uint64(p.where.Addr), Armed: t.s.clock.now()}
	t.file.Mem[t.file.Layout.Kind(p.id)] = t.s.triggers.Kind(d.Name)
	t.describe(d, flags)
	p.ev.join(p)
	return nil
}

// free gives the id of a probe back that no record and no detour has any more.
// Its counters stay with its event.
func (t *feed) free(p *placed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.removed = true
	t.file.Store32(t.file.Layout.Probe(p.id), 0)
	t.file.Mem[t.file.Layout.Kind(p.id)] = 0
	t.takeRow(p)
	p.ev.part(p, t.counters.Probe(p.id))
	t.counters.Clear(p.id)
	if p.keepAs == nil {
		t.unkept.Add(-1)
	}
	t.ids[p.id-1] = nil
	t.spare = append(t.spare, p.id)
	t.changed()
}

// leave switches a probe off for good and takes it off the list that others
// see, or takes that back.
func (t *feed) leave(p *placed, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gone == p.removed {
		return
	}
	p.removed = gone
	if gone {
		p.wasOff = t.disabled(p)
		t.setFlags(p, 0, ring.FlagEnabled)
		t.file.Store32(t.file.Layout.Probe(p.id), 0)
	} else {
		if !p.wasOff && !t.ended.Load() {
			t.setFlags(p, ring.FlagEnabled, 0)
		}
		t.file.Store32(t.file.Layout.Probe(p.id), p.id)
	}
	t.changed()
}

// turn switches a probe on or off.
func (t *feed) turn(p *placed, on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p.removed:
	case t.ended.Load():
		p.wasOff = !on
	case on:
		t.setFlags(p, ring.FlagEnabled, 0)
	default:
		t.setFlags(p, 0, ring.FlagEnabled)
	}
}

// changed tells those who look that probes have come or gone.
func (t *feed) changed() {
	h := t.file.Layout.Header.Off
	t.changes.Add(1)
	t.file.Store32(h+ring.ProbesOff, uint32(len(t.ids)))
	t.file.Store64(h+ring.GenerationOff, t.file.Load64(h+ring.GenerationOff)+1)
}

// enabled reports whether hits of the probe are taken.
func (t *feed) enabled(p *placed) bool {
	return t.file.Load32(t.file.Layout.Flag(p.id))&ring.FlagEnabled != 0
}

// optimized reports whether the probe is a jump.
func (t *feed) optimized(p *placed) bool {
	return t.file.Load32(t.file.Layout.Flag(p.id))&ring.FlagOptimized != 0
}

// enableAgain undoes disableAll for another run.
func (t *feed) enableAgain() {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.ended.Load() {
		return
	}
	for _, p := range t.ids {
		if p != nil && !p.removed && !p.wasOff {
			t.setFlags(p, ring.FlagEnabled, 0)
		}
	}
	t.ended.Store(false)
}

// disabled reports whether the probe was switched off; at the end of a run all
// are, and it is what it was before.
func (t *feed) disabled(p *placed) bool {
	if t.ended.Load() {
		return p.wasOff
	}
	return !t.enabled(p)
}

// setFlags sets and clears flags of a probe.
func (t *feed) setFlags(p *placed, set, clear uint32) {
	// Others write the first byte at any time, and only it.
	at := t.file.Layout.Flag(p.id)
	for i := range 4 {
		on, off := byte(set>>(8*i)), byte(clear>>(8*i))
		if b := &t.file.Mem[at+int64(i)]; on|off != 0 {
			*b = *b&^off | on
		}
	}
}

// setTactic tells other kprobes how the probe's place is patched.
func (t *feed) setTactic(p *placed, tactic plan.Tactic) {
	at := t.file.Layout.Probe(p.id) + ring.TacticOff
	binary.LittleEndian.PutUint16(t.file.Mem[at:], uint16(tactic))
}

// disableAll has no probe take a hit any more.
func (t *feed) disableAll() {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.ids {
		if p == nil || p.removed {
			continue
		}
		if !t.ended.Load() {
			p.wasOff = !t.enabled(p)
		}
		t.setFlags(p, 0, ring.FlagEnabled)
	}
	t.ended.Store(true)
}

func (t *feed) probe(id uint32) *placed {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if id == 0 || int(id) > len(t.ids) {
		return nil
	}
	return t.ids[id-1]
}

// hasRoom reports whether there are numbers for so many places.
func (t *feed) hasRoom(n int) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if room := t.file.Layout.MaxProbes - len(t.ids) + len(t.spare); n > room {
		return fmt.Errorf("%d places, and there is room for %d probes in this process: give a narrower pattern, or all patterns when kprobe begins, which makes room for twice as many as it begins with, at most %d", n+t.file.Layout.MaxProbes-room, t.file.Layout.MaxProbes, ring.MaxID)
	}
	return nil
}

// number takes a free number for a place; nil is for none. The lock is held.
func (t *feed) number(p *placed) (uint32, error) {
	if n := len(t.spare); n > 0 {
		id := t.spare[n-1]
		t.spare = t.spare[:n-1]
		t.ids[id-1] = p
		return id, nil
	}
	if len(t.ids) >= t.file.Layout.MaxProbes {
		return 0, fmt.Errorf("more than %d probes in a process", len(t.ids))
	}
	t.ids = append(t.ids, p)
	return uint32(len(t.ids)), nil
}

// describe writes a descriptor: the number comes last, and makes it valid. The
// lock is held.
func (t *feed) describe(d ring.Probe, flags uint32) {
	b := d.Encode()
	at := t.file.Layout.Probe(d.ID)
	t.file.Store32(t.file.Layout.Flag(d.ID), flags)
	copy(t.file.Mem[at+4:], b[4:])
	t.file.Store32(at, d.ID)
	t.changed()
}
