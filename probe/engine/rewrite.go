package engine

import (
	"slices"

	"kprobe/probe/area"
	"kprobe/probe/memory"
	"kprobe/probe/tracee"
)

// Change is bytes of the text to be replaced.
type Change = memory.Change

// Rewrite makes changes of the text, for which the threads are stopped (memory.Rewrite).
func (tg *Target) Rewrite(list []Change) error { return memory.Rewrite(tg.Proc, list) }

// writePatches puts the jumps of patches into the text. They are in the
// journal already; all threads are stopped. Nothing leads to the first part of them
// before the second is there, should kprobe be killed in between.
func (tg *Target) writePatches(list []*Patch) error {
	var first, second []Change
	for _, p := range list {
		for _, w := range p.writes() {
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

// RestorePatches gives the text its bytes back where it has those of the
// patches (area.Restore); all threads are stopped, those of processes that share the
// memory, too. What can't be restored stays armed, and in the journal.
func (tg *Target) RestorePatches(list []*Patch, stopped []*tracee.Thread) error {
	var all []*area.Write
	of := make([][]*area.Write, len(list))
	for i, p := range list {
		of[i] = p.writes()
		all = append(all, of[i]...)
	}
	tg.unnoteEntries(list)
	err := area.Restore(tg.Proc, all, stopped)
	for i, p := range list {
		stays := slices.ContainsFunc(of[i], func(w *area.Write) bool { return !w.Done })
		for q := p; q != nil; q = q.island {
			if stays {
				q.Armed = true // as far as anybody knows: its code is needed
			} else {
				tg.retirePatch(q)
			}
		}
	}
	return err
}

// writes lists what the patch has written, or is about to, as far as it is in the journal.
func (p *Patch) writes() (list []*area.Write) {
	for q := p; q != nil; q = q.island {
		for i := range q.entries {
			w := q.Plan.Writes[i]
			list = append(list, &area.Write{
				Change: Change{At: w.At, Old: w.Bytes, New: q.Before[i].Bytes},
				Leads:  q == p && i == len(q.Plan.Writes)-1,
			})
		}
	}
	return list
}

// RestoreSites takes the int3s of sites out; all threads are stopped. The
// copies stay. What can't be restored stays armed.
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

// removal is what takes the site's int3 out, if it is there.
func (s *Site) removal() Change {
	return Change{At: uint64(s.Addr), Old: []byte{breakpoint}, New: s.code[:1]}
}
