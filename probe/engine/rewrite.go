package engine

import (
	"iter"
	"slices"

	"kprobe/probe/area"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/tracee"
)

// Change is a replacement of bytes of the text.
type Change = memory.Change

// Rewrite changes the text. All threads must be stopped (memory.Rewrite).
func (tg *Target) Rewrite(list []Change) error { return memory.Rewrite(tg.Proc, list) }

// writePatches writes the jumps of patches into the text. The journal has their entries already, and
// all threads are stopped. The writes that lead into a patch come last, so that no thread comes to
// half a patch if kprobe is killed in between.
func (tg *Target) writePatches(list []*Patch) error {
	leading, others := 0, 0
	for _, p := range list {
		for w := range p.allWrites() {
			if w.Leads {
				leading++
			} else {
				others++
			}
		}
	}
	first, second := make([]Change, 0, others), make([]Change, 0, leading)
	for _, p := range list {
		for w := range p.allWrites() {
			if c := (Change{At: w.At, New: w.Old}); w.Leads {
				second = append(second, c)
			} else {
				first = append(first, c)
			}
		}
	}
	if err := tg.Rewrite(first); err != nil {
		return err
	}
	return tg.Rewrite(second)
}

// RestorePatches writes the original bytes where the text has those of patches (area.Restore). All
// threads must be stopped, also those of processes that share the memory. A patch that can't be
// restored stays armed and in the journal.
func (tg *Target) RestorePatches(list []*Patch, stopped []*tracee.Thread) error {
	all, of := writesOf(list)
	tg.unnoteEntries(list)
	err := area.Restore(tg.Proc, all, stopped)
	for i, p := range list {
		stays := slices.ContainsFunc(of[i], func(w *area.Write) bool { return !w.Done })
		for q := p; q != nil; q = q.island {
			if stays {
				q.Armed = true // it may be in the text, so its code must stay
			} else {
				tg.retirePatch(q)
			}
		}
	}
	return err
}

// writesOf lists the writes of patches: all of them, and those of each patch.
func writesOf(list []*Patch) (all []*area.Write, of [][]*area.Write) {
	of = make([][]*area.Write, len(list))
	for i, p := range list {
		of[i] = p.writes()
		all = append(all, of[i]...)
	}
	return all, of
}

// writes lists the patch's writes that are in the journal, whether they are in the text already or
// not.
func (p *Patch) writes() (list []*area.Write) {
	for w := range p.allWrites() {
		list = append(list, &w)
	}
	return list
}

// allWrites yields what writes lists.
func (p *Patch) allWrites() iter.Seq[area.Write] {
	return func(yield func(area.Write) bool) {
		for q := p; q != nil; q = q.island {
			for w := range q.written {
				if !yield(area.Write{
					Change: Change{At: w.At, Old: w.Bytes, New: w.Old},
					Leads:  (q == p || q.Plan.Tactic == plan.ShortJump) && w.Last,
				}) {
					return
				}
			}
		}
	}
}

// RestoreSites removes the int3s of sites. All threads must be stopped. The copies stay. A site that
// can't be restored stays armed.
func (tg *Target) RestoreSites(list []*Site) error {
	var changes []Change
	at := map[uint64]*Site{}
	for _, st := range list {
		if st.Armed {
			changes = append(changes, st.removal())
			at[uint64(st.Addr)] = st
		}
	}
	err := tg.Rewrite(changes)
	for _, c := range changes {
		if c.Done {
			tg.disarmed(at[c.At])
		}
	}
	return err
}

// removal is the Change that removes the site's int3.
func (s *Site) removal() Change {
	return Change{At: uint64(s.Addr), Old: []byte{breakpoint}, New: s.code[:1]}
}
