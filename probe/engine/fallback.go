package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/probe/asm"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// catchFor lays the fallback handler under what patches need a tracer for: loads that may
// fault, guards, detours that can't go on, and instructions that may fault in their
// copies.
func (tg *Target) catchFor(ctx context.Context, list []*Patch) error {
	a := tg.Area
	tg.noteIgnored(CaughtSignals(tg.Proc.PID()))
	sigs := map[syscall.Signal]bool{}
	a.Table.Reserve(caught(list))
	for _, p := range list {
		for s := range p.allStages() {
			if err := tg.catchCopy(s.moved(), s.CopyAt); err != nil {
				return err
			}
			if s.Detour == nil {
				continue
			}
			tg.detours = true
			if s.Detour.NoRoom != 0 {
				if err := a.Table.Insert(s.Detour.NoRoom, uint64(s.CopyAt)); err != nil {
					return err
				}
			}
			for _, f := range s.Detour.Faults {
				if err := a.Table.Insert(detour.FaultKey(f.At), f.To); err != nil {
					return err
				}
			}
			if len(s.Detour.Faults) > 0 || s.Detour.SharedFaults {
				sigs[unix.SIGSEGV], sigs[unix.SIGBUS] = true, true
			}
			tg.catchDetour(s)
		}
		for g, to := range p.Guards() {
			if err := a.Table.Insert(GuardKey(g), uint64(to)); err != nil {
				return err
			}
			if g.Byte != Breakpoint {
				sigs[unix.SIGILL] = true
			}
		}
	}
	return errors.Join(tg.catchSignals(ctx, nil, sigs), tg.catchFaults(ctx))
}

// caught is how many places of patches the fallback handler is told of, about.
func caught(list []*Patch) (n int) {
	for _, p := range list {
		for s := range p.allStages() {
			if n += len(s.code) / 8; s.Detour == nil {
				continue
			}
			n += len(s.Detour.Faults) + len(s.Detour.Asks)
			for range s.Pushes() {
				n++
			}
		}
		for q := p; q != nil; q = q.Island {
			n += len(q.Plan.Guards)
		}
	}
	return n
}

// catchDetour has the fallback handler send threads on whose detours can't go on: those that ask
// (detour.Ask), and those whose stack has no room. What the table has no room for
// is left out.
func (tg *Target) catchDetour(s *stage) {
	table := tg.Area.Table
	for _, k := range s.Detour.Asks {
		_ = table.Insert(detour.FaultKey(k.At), k.Back)
	}
	for k := range s.Pushes() {
		if !table.Spare() {
			return
		}
		if to, ok := detour.PushFault(k, uint64(s.CopyAt)); ok {
			_ = table.Insert(detour.FaultKey(k.At), to)
		}
	}
}

// forgetDetour takes from the fallback handler's table what catchDetour has put there.
func (tg *Target) forgetDetour(s *stage) {
	for _, k := range s.Detour.Asks {
		tg.Area.Table.Remove(detour.FaultKey(k.At))
	}
	for k := range s.Pushes() {
		tg.Area.Table.Remove(detour.FaultKey(k.At))
	}
}

// Pushes are the instructions of the stage's detour, and of the return trampolines of its
// return probe, at which there may be no stack.
func (s *stage) Pushes() iter.Seq[detour.Push] {
	return func(yield func(detour.Push) bool) {
		for k := range s.Detour.Pushes() {
			if !yield(k) {
				return
			}
		}
		if s.trampolines == nil {
			return
		}
		for n := range s.trampolines.Count() {
			if !yield(s.trampolines.StubPush(n + 1)) {
				return
			}
		}
	}
}

// catchSites lays the fallback handler under the copies of breakpoints' instructions.
func (tg *Target) catchSites(ctx context.Context, list []*Site) error {
	for _, st := range list {
		if err := tg.catchCopy(st.moved, st.slot); err != nil {
			return fmt.Errorf("too many probes: %w", err)
		}
	}
	return tg.catchFaults(ctx)
}

// catchFaults has fallback handlers answer faults of detours, and those in copies, of which only a
// handler of the program's takes notice. One that it sets later is found by
// layFallbacksAgain.
func (tg *Target) catchFaults(ctx context.Context) error {
	err := tg.catchSignals(ctx, nil, tg.faultsCaught())
	if errors.Is(err, tracee.ErrNoThread) {
		return nil // later: it matters only where the tracer is killed
	}
	return err
}

// faultsCaught gives the signals of faults that fallback handlers are to answer, and none does:
// those of detours, and of copies where the program has handlers.
func (tg *Target) faultsCaught() map[syscall.Signal]bool {
	out := maps.Clone(tg.faultSigs)
	if tg.detours {
		out[unix.SIGSEGV], out[unix.SIGBUS] = true, true
	}
	maps.DeleteFunc(out, func(sig syscall.Signal, _ bool) bool { _, there := tg.actions[sig]; return there })
	if len(out) == 0 {
		return nil
	}
	caught := SignalSet(CaughtSignals(tg.Proc.PID()), "SigCgt:")
	maps.DeleteFunc(out, func(sig syscall.Signal, _ bool) bool {
		return caught&(1<<(sig-1)) == 0 && !(tg.detours && (sig == unix.SIGSEGV || sig == unix.SIGBUS))
	})
	return out
}

// SignalSet reads a set of signals from lines of /proc/PID/status.
func SignalSet(status, name string) (set uint64) {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, name); ok {
			set, _ = strconv.ParseUint(strings.TrimSpace(v), 16, 64) // the kernel's
		}
	}
	return set
}

// noteIgnored remembers which signals the program ignores, or did when that was looked
// at before: one that was just forced it ignores no more.
func (tg *Target) noteIgnored(status string) {
	now := SignalSet(status, "SigIgn:")
	tg.ignored = now | tg.ignoring
	tg.ignoring = now
}

// catchCopy has the fallback handler show faults in a copy, which is at an address, as those
// of the originals, once it answers the signals of these.
func (tg *Target) catchCopy(m insn.Moved, at symbols.Addr) error {
	memory, division := m.Faulting(uint64(at))
	for _, pt := range append(memory, division...) {
		to, ok := detour.CopyFault(pt.IP, int(pt.AddSP), asm.Reg(pt.Scratch))
		if !ok {
			continue // a fallback handler can't undo what the copy did; there is none such
		}
		if err := tg.Area.Table.Insert(detour.FaultKey(uint64(at)+uint64(pt.Off)), to); err != nil {
			return err
		}
	}
	if len(memory) > 0 {
		tg.faultSigs[unix.SIGSEGV], tg.faultSigs[unix.SIGBUS] = true, true
	}
	if len(division) > 0 {
		tg.faultSigs[unix.SIGFPE] = true
	}
	return nil
}

// leaveCopy takes from the fallback handler's table what it knows of a copy that no thread can
// be in.
func (tg *Target) leaveCopy(m insn.Moved, at symbols.Addr) {
	memory, division := m.Faulting(uint64(at))
	for _, pt := range append(memory, division...) {
		tg.Area.Table.Remove(detour.FaultKey(uint64(at) + uint64(pt.Off)))
	}
}

// catchSignals has fallback handlers answer signals that none answers yet.
func (tg *Target) catchSignals(ctx context.Context, t *tracee.Thread, sigs map[syscall.Signal]bool) error {
	a := tg.Area
	for sig := range sigs {
		if _, ok := tg.actions[sig]; ok {
			continue
		}
		if _, err := a.Catch(ctx, t, sig); err != nil {
			return err
		}
		act, err := a.Proc.Sigaction(ctx, t, sig)
		if err != nil {
			return err
		}
		tg.actions[sig] = act
	}
	return nil
}

// GuardKey is a guard's key in the fallback handler's table.
func GuardKey(g plan.Guard) uint64 {
	if g.Byte == Breakpoint {
		return g.At
	}
	return detour.FaultKey(g.At)
}

// retireGuards has threads that arrive at the guards of a patch that was
// taken out go on at the instruction itself.
func (tg *Target) retireGuards(p *Patch) {
	for _, g := range p.Plan.Guards {
		tg.Area.Table.Retire(GuardKey(g))
		delete(tg.Patches.Guards, symbols.Addr(g.At))
	}
}
