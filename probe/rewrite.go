package probe

import (
	"slices"

	"kprobe/probe/area"
	"kprobe/probe/memory"
	"kprobe/probe/tracee"
)

// change is bytes of the text to be replaced.
type change = memory.Change

// rewrite makes changes of the text, for which the threads are stopped (memory.Rewrite).
func (tg *target) rewrite(list []change) error { return memory.Rewrite(tg.proc, list) }

// writePatches puts the jumps of patches into the text. They are in the
// journal already; all threads are stopped. Nothing leads to the first part of them
// before the second is there, should kprobe be killed in between.
func (tg *target) writePatches(list []*patch) error {
	var first, second []change
	for _, p := range list {
		for _, w := range p.writes() {
			if c := (change{At: w.At, New: w.Old}); w.Leads {
				second = append(second, c)
			} else {
				first = append(first, c)
			}
		}
	}
	if err := tg.rewrite(first); err != nil {
		return err
	}
	return tg.rewrite(second)
}

// restorePatches gives the text its bytes back where it has those of the
// patches (area.Restore); all threads are stopped, those of processes that share the
// memory, too. What can't be restored stays armed, and in the journal.
func (tg *target) restorePatches(list []*patch, stopped []*tracee.Thread) error {
	var all []*area.Write
	of := make([][]*area.Write, len(list))
	for i, p := range list {
		of[i] = p.writes()
		all = append(all, of[i]...)
	}
	tg.unnoteEntries(list)
	err := area.Restore(tg.proc, all, stopped)
	for i, p := range list {
		stays := slices.ContainsFunc(of[i], func(w *area.Write) bool { return !w.Done })
		for q := p; q != nil; q = q.island {
			if stays {
				q.armed = true // as far as anybody knows: its code is needed
			} else {
				tg.retirePatch(q)
			}
		}
	}
	return err
}

// writes lists what the patch has written, or is about to, as far as it is in the journal.
func (p *patch) writes() (list []*area.Write) {
	for q := p; q != nil; q = q.island {
		for i := range q.entries {
			w := q.plan.Writes[i]
			list = append(list, &area.Write{
				Change: change{At: w.At, Old: w.Bytes, New: q.before[i].Bytes},
				Leads:  q == p && i == len(q.plan.Writes)-1,
			})
		}
	}
	return list
}

// restoreSites takes the int3s of sites out; all threads are stopped. The
// copies stay. What can't be restored stays armed.
func (tg *target) restoreSites(list []*site) error {
	var changes []change
	at := map[uint64]*site{}
	for _, st := range list {
		if st.armed {
			changes = append(changes, st.removal())
			at[uint64(st.addr)] = st
		}
	}
	err := tg.rewrite(changes)
	for _, c := range changes {
		if c.Done {
			tg.disarmed(at[c.At])
		}
	}
	return err
}

// removal is what takes the site's int3 out, if it is there.
func (s *site) removal() change {
	return change{At: uint64(s.addr), Old: []byte{breakpoint}, New: s.code[:1]}
}
