package engine

import (
	"encoding/binary"
	"fmt"

	"kprobe/probe/feed"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
)

// The directory of a memory file
//
// Each probe of a process has a number, by which its records and counters are known, a
// descriptor for other kprobes, and flags that detours read: whether hits are taken.

// add gives a probe its id and its descriptor, enabled unless its event is off.
func (t *Feed) add(p *Placed) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, err := t.number(p)
	if err != nil {
		return err
	}
	p.Id = id
	t.seq++
	p.feed, p.seq, p.removed = t, t.seq, false
	t.giveRow(p)
	p.read = p.reading()
	t.Added(p.read)
	flags := uint32(ring.FlagEnabled)
	if p.Ev.off.Load() || t.waitsOff(p) {
		flags = 0
	}
	if p.Ev.Return {
		flags |= ring.FlagReturn
	}
	if !t.engine.records(p.user) {
		flags |= ring.FlagCountOnly
	}
	d := ring.Probe{ID: p.Id, Name: p.Ev.Group + "/" + p.Ev.Name, Addr: uint64(p.Where.Addr), Armed: t.engine.clock.Now()}
	t.File.Mem[t.File.Layout.Kind(p.Id)] = t.engine.Triggers.Kind(d.Name)
	t.describe(d, flags)
	p.Ev.join(p)
	return nil
}

// free gives the id of a probe back that no record and no detour has any more.
// Its counters stay with its event.
func (t *Feed) free(p *Placed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.removed = true
	t.File.Store32(t.File.Layout.Probe(p.Id), 0)
	t.File.Mem[t.File.Layout.Kind(p.Id)] = 0
	t.takeRow(p)
	p.Ev.part(p, t.counters.Probe(p.Id))
	t.counters.Clear(p.Id)
	t.Removed(p.read)
	t.Ids[p.Id-1] = nil
	t.Spare = append(t.Spare, p.Id)
	t.changed()
}

// leave switches a probe off for good and takes it off the list that others
// see, or takes that back.
func (t *Feed) leave(p *Placed, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gone == p.removed {
		return
	}
	p.removed = gone
	if gone {
		p.wasOff = t.disabled(p)
		t.setFlags(p, 0, ring.FlagEnabled)
		t.File.Store32(t.File.Layout.Probe(p.Id), 0)
	} else {
		if !p.wasOff && !t.ended.Load() {
			t.setFlags(p, ring.FlagEnabled, 0)
		}
		t.File.Store32(t.File.Layout.Probe(p.Id), p.Id)
	}
	t.changed()
}

// turn switches a probe on or off.
func (t *Feed) turn(p *Placed, on bool) {
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
func (t *Feed) changed() {
	h := t.File.Layout.Header.Off
	t.Changed()
	t.File.Store32(h+ring.ProbesOff, uint32(len(t.Ids)))
	t.File.Store64(h+ring.GenerationOff, t.File.Load64(h+ring.GenerationOff)+1)
}

// enabled reports whether hits of the probe are taken.
func (t *Feed) enabled(p *Placed) bool {
	return t.File.Load32(t.File.Layout.Flag(p.Id))&ring.FlagEnabled != 0
}

// optimized reports whether the probe is a jump.
func (t *Feed) optimized(p *Placed) bool {
	return t.File.Load32(t.File.Layout.Flag(p.Id))&ring.FlagOptimized != 0
}

// enableAgain undoes disableAll for another run.
func (t *Feed) enableAgain() {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.ended.Load() {
		return
	}
	for _, p := range t.Ids {
		if p != nil && !p.removed && !p.wasOff {
			t.setFlags(p, ring.FlagEnabled, 0)
		}
	}
	t.ended.Store(false)
}

// disabled reports whether the probe was switched off; at the end of a run all
// are, and it is what it was before.
func (t *Feed) disabled(p *Placed) bool {
	if t.ended.Load() {
		return p.wasOff
	}
	return !t.enabled(p)
}

// setFlags sets and clears flags of a probe.
func (t *Feed) setFlags(p *Placed, set, clear uint32) {
	// Others write the first byte at any time, and only it.
	at := t.File.Layout.Flag(p.Id)
	for i := range 4 {
		on, off := byte(set>>(8*i)), byte(clear>>(8*i))
		if b := &t.File.Mem[at+int64(i)]; on|off != 0 {
			*b = *b&^off | on
		}
	}
}

// setTactic tells other kprobes how the probe's place is patched.
func (t *Feed) setTactic(p *Placed, tactic plan.Tactic) {
	at := t.File.Layout.Probe(p.Id) + ring.TacticOff
	binary.LittleEndian.PutUint16(t.File.Mem[at:], uint16(tactic))
}

// DisableAll has no probe take a hit any more.
func (t *Feed) DisableAll() {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range t.Ids {
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

func (t *Feed) probe(id uint32) *Placed {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if id == 0 || int(id) > len(t.Ids) {
		return nil
	}
	return t.Ids[id-1]
}

// read is what a reader knows of the probe that has a number; nil: none has it.
func (t *Feed) read(id uint32) *feed.Probe {
	if p := t.probe(id); p != nil {
		return p.read
	}
	return nil
}

// reading gives what a reader knows of the probe.
func (p *Placed) reading() *feed.Probe {
	x := feed.Probe{
		Event: &p.Ev.Event, Program: p.Program, Counts: &p.Ev.counts, Space: p.feed.Space,
		Addr: p.Where.Addr, Func: p.fn, Times: p.timeSlots, Watches: p.data != nil,
	}
	if p.user != nil {
		x.Deliver = p.deliver
	}
	return feed.NewProbe(x)
}

// mayHave says of a definition's places that no process can have numbers for so many.
func mayHave(places int) error {
	if places > ring.MaxID {
		return fmt.Errorf("%d places, and a process can have %d probes: give a narrower pattern", places, ring.MaxID)
	}
	return nil
}

// hasRoom reports whether there are numbers for so many places.
func (t *Feed) hasRoom(n int) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if room := t.File.Layout.MaxProbes - len(t.Ids) + len(t.Spare); n > room {
		return fmt.Errorf("%d places, and there is room for %d probes in this process: give a narrower pattern, or all patterns when kprobe begins, which makes room for twice as many as it begins with, at most %d", n+t.File.Layout.MaxProbes-room, t.File.Layout.MaxProbes, ring.MaxID)
	}
	return nil
}

// number takes a free number for a place; nil is for none. The lock is held.
func (t *Feed) number(p *Placed) (uint32, error) {
	if n := len(t.Spare); n > 0 {
		id := t.Spare[n-1]
		t.Spare = t.Spare[:n-1]
		t.Ids[id-1] = p
		return id, nil
	}
	if len(t.Ids) >= t.File.Layout.MaxProbes {
		return 0, fmt.Errorf("more than %d probes in a process", len(t.Ids))
	}
	t.Ids = append(t.Ids, p)
	return uint32(len(t.Ids)), nil
}

// describe writes a descriptor: the number comes last, and makes it valid. The
// lock is held.
func (t *Feed) describe(d ring.Probe, flags uint32) {
	b := d.Encode()
	at := t.File.Layout.Probe(d.ID)
	t.File.Store32(t.File.Layout.Flag(d.ID), flags)
	copy(t.File.Mem[at+4:], b[4:])
	t.File.Store32(at, d.ID)
	t.changed()
}
