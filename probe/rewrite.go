package probe

import (
	"errors"

	"golang.org/x/sys/unix"

	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// change is bytes of the text to be replaced.
type change = memory.Change

// rewrite makes changes of the text, for which the threads are stopped (memory.Rewrite).
func (tg *target) rewrite(list []change) error { return memory.Rewrite(tg.proc, list) }

// changes lists what arms patches, in two parts. The first is where no thread
// arrives before the second is made: should kprobe be killed between them,
// nothing leads to what is not there. Restoring takes the second out first.
func changes(list []*patch, of func(p *patch, i int) change) (first, second []change) {
	for _, p := range list {
		for q := p; q != nil; q = q.island {
			for i := range q.entries {
				c := of(q, i)
				if q == p && i == len(q.plan.Writes)-1 {
					second = append(second, c)
				} else {
					first = append(first, c)
				}
			}
		}
	}
	return first, second
}

// writePatches puts the jumps of patches into the text. They are in the
// journal already; all threads are stopped.
func (tg *target) writePatches(list []*patch) error {
	first, second := changes(list, func(p *patch, i int) change {
		return change{At: p.plan.Writes[i].At, New: p.plan.Writes[i].Bytes}
	})
	if err := tg.rewrite(first); err != nil {
		return err
	}
	return tg.rewrite(second)
}

// restorePatches gives the text its bytes back where it has those of the
// patches; all threads are stopped, those of processes that share the memory, too.
// What can't be restored stays armed, and in the journal.
func (tg *target) restorePatches(list []*patch, stopped []*tracee.Thread) error {
	first, second := changes(list, func(p *patch, i int) change {
		return change{At: p.plan.Writes[i].At, Old: p.plan.Writes[i].Bytes, New: p.before[i].Bytes}
	})
	tg.unnoteEntries(list)
	err := errors.Join(leaveLongJumps(list, stopped), leaveGuards(list, stopped))
	if err == nil {
		err = tg.rewrite(second)
	}
	if err == nil {
		// Nothing leads to these any more.
		err = tg.rewrite(first)
	}
	failed := map[uint64]bool{} // by address: patches don't overlap
	for _, part := range [][]change{first, second} {
		for i := range part {
			if !part[i].Done {
				failed[part[i].At] = true
			}
		}
	}
	for _, p := range list {
		stays := false
		for q := p; q != nil; q = q.island {
			for i := range q.entries {
				stays = stays || failed[q.plan.Writes[i].At]
			}
		}
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

// leaveLongJumps has threads that took a short jump, and no more, go on in its
// detour: where they are no instruction starts once the jumps are gone.
func leaveLongJumps(list []*patch, stopped []*tracee.Thread) error {
	to := map[uint64]uint64{}
	for _, p := range list {
		if a := p.plan.LongJump(); a != 0 && p.armed {
			to[a] = p.plan.Detour
		}
	}
	if len(to) == 0 {
		return nil
	}
	var errs []error
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil || t.AtTrap() {
			// Gone, or in the kernel; or it has met a breakpoint that stands right
			// before the long jump, and goes back to that.
			continue
		}
		if d, ok := to[regs.Rip]; ok {
			regs.Rip = d
			if err := t.SetRegs(regs); err != nil && !errors.Is(err, tracee.ErrGone) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// leaveGuards has threads that have met a guard which raises SIGILL, and whose
// signal is still to be handled, go on where it leads: once the guard is gone the
// signal would be the program's. A guard that is an int3 needs no such thing, as
// its trap is known by the byte that isn't there any more.
func leaveGuards(list []*patch, stopped []*tracee.Thread) error {
	to := map[uint64]symbols.Addr{}
	for _, p := range list {
		for g, at := range p.guards() {
			if p.armed && g.Byte != breakpoint {
				to[g.At] = at
			}
		}
	}
	if len(to) == 0 {
		return nil
	}
	var errs []error
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil {
			continue // gone, or in the kernel
		}
		if at, ok := to[regs.Rip]; ok && t.DropFault(unix.SIGILL) {
			regs.Rip = uint64(at)
			if err := t.SetRegs(regs); err != nil && !errors.Is(err, tracee.ErrGone) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
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
