package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// catchFor prepares the fallback handlers for everything for which patches else need a tracer: loads
// that may fault, guards, detours that can't go on, and instructions that may fault in their copies.
func (tg *Target) catchFor(ctx context.Context, list []*Patch) error {
	a := tg.Area
	f := &tg.faults
	f.noteIgnored(caughtSignals(tg.Proc.PID()))
	sigs := map[syscall.Signal]bool{}
	var mover insn.Relocator
	err := a.Table.Together(caught(list), func() error {
		for _, p := range list {
			if err := f.catchPatch(a.Table, p, &mover, sigs); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(f.answer(ctx, a, nil, sigs), tg.catchFaults(ctx))
}

// catchPatch enters what a patch needs into the fallback handler's table, and adds the signals that the handler must have to sigs.
func (f *faultSignals) catchPatch(table *detour.Table, p *Patch, mover *insn.Relocator, sigs map[syscall.Signal]bool) error {
	for s := range p.allStages() {
		if err := f.catchCopy(table, s.MovedBy(mover), s.CopyAt()); err != nil {
			return err
		}
		if !s.Probed() {
			continue
		}
		f.detours = true
		d := s.Detour()
		if at := d.NoRoom(); at != 0 {
			if err := table.Insert(at, uint64(s.CopyAt())); err != nil {
				return err
			}
		}
		for _, at := range d.Faults() {
			if err := table.Insert(detour.FaultKey(at.At), at.To); err != nil {
				return err
			}
		}
		if len(d.Faults()) > 0 || d.SharedFaults() {
			sigs[unix.SIGSEGV], sigs[unix.SIGBUS] = true, true
		}
		s.catchDetour(table)
	}
	for g, to := range p.Guards() {
		if err := table.Insert(GuardKey(g), uint64(to)); err != nil {
			return err
		}
		if g.Byte != breakpoint {
			sigs[unix.SIGILL] = true
		}
	}
	return nil
}

// caught estimates how many entries the patches need in the fallback handler's table.
func caught(list []*Patch) (n int) {
	for _, p := range list {
		for s := range p.allStages() {
			if n += len(s.Code()) / 8; !s.Probed() {
				continue
			}
			d := s.Detour()
			n += len(d.Faults()) + len(d.Asks())
			if d.NoRoom() != 0 {
				n++
			}
			for range s.Pushes() {
				n++
			}
		}
		for q := p; q != nil; q = q.island {
			n += q.Plan.CountGuards()
		}
	}
	return n
}

// catchDetour enters into the fallback handler's table where threads continue whose detours can't go
// on, because they ask (detour.Ask) or because their stack has no room. If the table is full, the
// rest is left out.
func (s stage) catchDetour(table *detour.Table) {
	d := s.Detour()
	for _, k := range d.Asks() {
		_ = table.Insert(detour.FaultKey(k.At), k.Back)
	}
	for k := range s.Pushes() {
		if !table.Spare() {
			return
		}
		if to, ok := detour.PushFault(k, uint64(s.CopyAt())); ok {
			_ = table.Insert(detour.FaultKey(k.At), to)
		}
	}
}

// forgetDetour removes the entries of catchDetour from the fallback handler's table.
func (s stage) forgetDetour(table *detour.Table) {
	d := s.Detour()
	for _, k := range d.Asks() {
		table.Remove(detour.FaultKey(k.At))
	}
	for k := range s.Pushes() {
		table.Remove(detour.FaultKey(k.At))
	}
}

// Pushes yields the instructions of the stage's detour, and of its return trampolines, that write to
// the stack and may find no room.
func (s stage) Pushes() iter.Seq[detour.Push] {
	return func(yield func(detour.Push) bool) {
		d := s.Detour()
		for k := range d.Pushes() {
			if !yield(k) {
				return
			}
		}
		stubs := s.Trampolines()
		if stubs == nil {
			return
		}
		for n := range stubs.Count() {
			if !yield(stubs.StubPush(n + 1)) {
				return
			}
		}
	}
}

// catchSites prepares the fallback handlers for faults in the copies of breakpoints' instructions.
func (tg *Target) catchSites(ctx context.Context, list []*Site) error {
	for _, st := range list {
		if err := tg.faults.catchCopy(tg.Area.Table, st.moved, st.slot); err != nil {
			return fmt.Errorf("too many probes: %w", err)
		}
	}
	return tg.catchFaults(ctx)
}

// catchFaults sets fallback handlers for the signals of faults in detours. For faults in copies it
// does so only if the program has a handler for the signal; a handler that the program sets later is
// noticed by LayFallbacksAgain.
func (tg *Target) catchFaults(ctx context.Context) error {
	err := tg.faults.answer(ctx, tg.Area, nil, tg.faults.unanswered(tg.Proc.PID()))
	if errors.Is(err, tracee.ErrNoThread) {
		return nil // tried again later: the handlers are needed only if the tracer is killed
	}
	return err
}

// GuardKey is a guard's key in the fallback handler's table.
func GuardKey(g plan.Guard) uint64 {
	if g.Byte == breakpoint {
		return g.At
	}
	return detour.FaultKey(g.At)
}

// retireGuards removes the guards of a patch that is no longer in the text. A thread whose trap at a
// guard is not answered yet continues at the instruction itself.
func (tg *Target) retireGuards(p *Patch) {
	for g := range p.Plan.Guards() {
		tg.Area.Table.Retire(GuardKey(g))
		delete(tg.Patches.Guards, symbols.Addr(g.At))
	}
}
