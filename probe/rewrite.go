package probe

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// change is bytes of the text to be replaced.
type change struct {
	at   uint64
	old  []byte // what must be there, or nothing is changed; nil: whatever is
	new  []byte
	from *patch
	done bool // it is made, or was not to be
	// wrote says that it is made: the bytes of old were there.
	wrote bool
}

func (c *change) end() uint64 { return c.at + uint64(len(c.new)) }

const (
	// rewriteGap is how many bytes that stay may lie between two changes that
	// are written at once. It is less than a page, so that no page is written
	// in which nothing changes.
	rewriteGap = 1024
	// rewriteMost bounds what is written at once.
	rewriteMost = 64 << 10
)

// rewrite makes changes that don't overlap, neighbours in one write: a write of
// its own for each of ten thousand would stop the target for many milliseconds.
// The threads must be stopped, for the bytes between changes are written too,
// as they are. The changes come back in order of address.
func (tg *target) rewrite(list []change) error { return rewriteIn(tg.proc, list) }

func rewriteIn(p *tracee.Process, list []change) error {
	slices.SortFunc(list, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var errs []error
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].at < list[n-1].end()+rewriteGap && list[n].end()-list[0].at <= rewriteMost {
			n++
		}
		errs = append(errs, rewriteSpan(p, list[:n]))
		list = list[n:]
	}
	return errors.Join(errs...)
}

func rewriteSpan(p *tracee.Process, list []change) error {
	start := list[0].at
	span := make([]byte, list[len(list)-1].end()-start)
	if _, err := p.ReadMemory(span, symbols.Addr(start)); err != nil {
		switch {
		case len(list) > 1:
			return errors.Join(rewriteSpan(p, list[:1]), rewriteSpan(p, list[1:]))
		case list[0].old != nil && errors.Is(err, unix.EFAULT) && !errors.Is(err, symbols.ErrLatePage):
			list[0].done = true // its library was unloaded
			return nil
		}
		return err
	}
	changed := false
	for i := range list {
		c := &list[i]
		here := span[c.at-start : c.end()-start]
		if c.old == nil || bytes.Equal(here, c.old) {
			copy(here, c.new)
			c.wrote, changed = true, true
		}
	}
	if changed {
		if err := p.WriteMemory(span, symbols.Addr(start)); err != nil {
			for i := range list {
				list[i].wrote = false
			}
			return err
		}
	}
	for i := range list {
		list[i].done = true
	}
	return nil
}

// changes lists what arms patches, in two parts. The first is where no thread
// arrives before the second is made: should kprobe be killed between them,
// nothing leads to what is not there. Restoring takes the second out first.
func changes(list []*patch, of func(p *patch, i int) change) (first, second []change) {
	for _, p := range list {
		for q := p; q != nil; q = q.island {
			for i := range q.entries {
				c := of(q, i)
				c.from = q
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
		return change{at: p.plan.Writes[i].At, new: p.plan.Writes[i].Bytes}
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
		return change{at: p.plan.Writes[i].At, old: p.plan.Writes[i].Bytes, new: p.before[i].Bytes}
	})
	err := errors.Join(leaveLongJumps(list, stopped), leaveGuards(list, stopped))
	if err == nil {
		err = tg.rewrite(second)
	}
	if err == nil {
		// Nothing leads to these any more.
		err = tg.rewrite(first)
	}
	failed := map[*patch]bool{}
	for _, part := range [][]change{first, second} {
		for i := range part {
			if !part[i].done {
				failed[part[i].from] = true
			}
		}
	}
	for _, p := range list {
		stays := false
		for q := p; q != nil; q = q.island {
			stays = stays || failed[q]
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
		if c.done {
			tg.disarmed(at[c.at])
		}
	}
	return err
}

// removal is what takes the site's int3 out, if it is there.
func (s *site) removal() change {
	return change{at: uint64(s.addr), old: []byte{breakpoint}, new: s.code[:1]}
}
