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
// Each probe of a process has a number, which identifies its records and counters; a descriptor for
// other kprobes; and flags that detours read, such as whether hits are taken.

// add assigns a number to a probe and writes its descriptor. The probe is enabled unless its event is
// off.
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
	p.known.Store(nil)
	t.Added(p.keepable())
	flags := uint32(ring.FlagEnabled)
	if p.Ev.off.Load() || t.waitsOff(p) {
		flags = 0
	}
	if p.Ev.Return {
		flags |= ring.FlagReturn
	}
	if !t.engine.records(p.user()) {
		flags |= ring.FlagCountOnly
	}
	d := ring.Probe{ID: p.Id, Name: p.Ev.Group + "/" + p.Ev.Name, Addr: uint64(p.Where.Addr), Armed: t.engine.clock.Now()}
	t.File.Mem[t.File.Layout.Kind(p.Id)] = t.engine.Triggers.Kind(d.Name)
	t.describe(d, flags)
	p.Ev.join(p)
	return nil
}

// free releases a probe's number. No record and no detour may have the number any more. The probe's
// counters are added to those of its event. used says that code with the number may have been written; else nothing was
// counted, and its place is forgotten.
func (t *Feed) free(p *Placed, used bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.removed = true
	t.identify(p.Id, 0)
	t.File.Mem[t.File.Layout.Kind(p.Id)] = 0
	t.takeRow(p)
	if used {
		p.Ev.part(p, t.counters.Probe(p.Id))
		t.counters.Clear(p.Id)
	} else {
		p.Ev.leave(p)
	}
	t.Removed(p.keepable())
	t.Ids[p.Id-1] = nil
	t.Spare = append(t.Spare, p.Id)
	t.changed()
}

// leave switches a probe off for good and removes its descriptor, if gone is true. Otherwise it
// undoes that.
func (t *Feed) leave(p *Placed, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gone == p.removed {
		return
	}
	p.removed = gone
	if gone {
		p.wasOff = t.disabled(p)
		t.File.Mem[t.File.Layout.Kind(p.Id)] = 0 // so that no trigger switches it on again
		t.setFlags(p, 0, ring.FlagEnabled)
		t.identify(p.Id, 0)
	} else {
		if !p.wasOff && !t.ended.Load() {
			t.setFlags(p, ring.FlagEnabled, 0)
		}
		t.File.Mem[t.File.Layout.Kind(p.Id)] = t.engine.Triggers.Kind(p.Ev.Group + "/" + p.Ev.Name)
		t.identify(p.Id, p.Id)
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

// changed tells readers of the memory file that its probes have changed, by a new generation.
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

// enableAgain undoes DisableAll for another run.
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

// disabled reports whether the probe is switched off. After DisableAll it reports whether it was
// before.
func (t *Feed) disabled(p *Placed) bool {
	if t.ended.Load() {
		return p.wasOff
	}
	return !t.enabled(p)
}

// setFlags sets and clears flags of a probe.
func (t *Feed) setFlags(p *Placed, set, clear uint32) {
	// Byte by byte: other processes write the first byte, and only it, at any time.
	at := t.File.Layout.Flag(p.Id)
	for i := range 4 {
		on, off := byte(set>>(8*i)), byte(clear>>(8*i))
		if b := &t.File.Mem[at+int64(i)]; on|off != 0 {
			*b = *b&^off | on
		}
	}
}

// setTactic writes to the probe's descriptor how its place is patched.
func (t *Feed) setTactic(p *Placed, tactic plan.Tactic) {
	at := t.File.Layout.Probe(p.Id) + ring.TacticOff
	binary.LittleEndian.PutUint16(t.File.Mem[at:], uint16(tactic))
	t.descriptors.Touched(at, 2)
}

// DisableAll switches all probes off.
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
	return t.at(id)
}

// at is probe with mu held.
func (t *Feed) at(id uint32) *Placed {
	if id == 0 || int(id) > len(t.Ids) {
		return nil
	}
	return t.Ids[id-1]
}

// read finds what a reader needs to know of the probe with number id; nil if there is none. It is made when it
// is first asked for: most of the functions of a program have no hits.
func (t *Feed) read(id uint32) *feed.Probe {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p := t.at(id)
	if p == nil {
		return nil
	}
	if k := p.known.Load(); k != nil && k.read != nil {
		return k.read
	}
	read := p.reading()
	return p.learnt(func(k *known) {
		if k.read == nil {
			k.read = read
		}
	}).read
}

// keepable reports whether the probe's records can be kept as they are.
func (p *Placed) keepable() bool {
	return feed.Keepable(p.Program, p.user() != nil, p.data() != nil)
}

// reading makes what a reader needs to know of the probe.
func (p *Placed) reading() *feed.Probe {
	x := feed.Probe{
		Event: &p.Ev.Event, Program: p.Program, Counts: &p.Ev.counts, Space: p.feed.Space,
		Addr: p.Where.Addr, Func: p.returnsFrom(), Times: p.timeSlots(), Watches: p.data() != nil,
	}
	if p.user() != nil {
		x.Deliver = p.deliver
	}
	return feed.NewProbe(x)
}

// mayHave returns an error if a process can't have that many probes at all.
func mayHave(places int) error {
	if places > ring.MaxID {
		return fmt.Errorf("%d places, and a process can have %d probes: give a narrower pattern", places, ring.MaxID)
	}
	return nil
}

// hasRoom returns an error if the memory file has no numbers for n more probes.
func (t *Feed) hasRoom(n int) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if room := t.File.Layout.MaxProbes - len(t.Ids) + len(t.Spare); n > room {
		return fmt.Errorf("%d places, and there is room for %d probes in this process: give a narrower pattern, or all patterns when kprobe begins, which makes room for twice as many as it begins with, at most %d", n+t.File.Layout.MaxProbes-room, t.File.Layout.MaxProbes, ring.MaxID)
	}
	return nil
}

// number takes a free number for a probe. The lock is held.
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

// identify stores the number in the descriptor of probe id: its own, or 0, with which there is no such probe.
func (t *Feed) identify(id, number uint32) {
	at := t.File.Layout.Probe(id)
	t.File.Store32(at, number)
	t.descriptors.Touched(at, 4)
}

// describe writes a descriptor. Its number is written last, and makes it valid. The lock is held.
func (t *Feed) describe(d ring.Probe, flags uint32) {
	d.EncodeTo(t.descriptor[:])
	at := t.File.Layout.Probe(d.ID)
	t.File.Store32(t.File.Layout.Flag(d.ID), flags)
	copy(t.File.Mem[at+4:], t.descriptor[4:])
	t.File.Store32(at, d.ID)
	t.descriptors.Touched(at, ring.ProbeSize)
	t.changed()
}
