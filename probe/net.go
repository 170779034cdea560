package probe

import (
	"context"
	"errors"
	"fmt"
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

// catch has a net answer a signal, chained before what the program does on it.
// It may be called again: a net that the program has replaced since gets
// another one in front. t is a stopped thread of the process or nil.
func (a *area) catch(ctx context.Context, t *tracee.Thread, sig syscall.Signal) (changed bool, err error) {
	changed, err = a.nets.Catch(ctx, t, sig)
	if err == nil && changed && sig == unix.SIGTRAP {
		err = a.proc.GuardTrap(ctx, t)
	}
	return changed, err
}

// leaveChild gives a forked child, whose copy of the text is clean, its own
// actions back. What is mapped stays: it is inherited, unused and gone at
// exec.
func (a *area) leaveChild(ctx context.Context) error {
	_, err := a.nets.Inherited(a.proc).Remove(ctx)
	return err
}

// catchFor lays the net under what patches need a tracer for: loads that may
// fault, guards, and instructions that may fault in their copies.
func (tg *target) catchFor(ctx context.Context, list []*patch) error {
	a := tg.area
	sigs := map[syscall.Signal]bool{}
	for _, p := range list {
		for q := p; q != nil; q = q.hole {
			for _, s := range q.stages {
				if err := tg.catchCopy(s.moved, s.copyAt); err != nil {
					return err
				}
			}
		}
		for _, s := range p.stages {
			if s.detour == nil {
				continue
			}
			if s.detour.NoRoom != 0 {
				if err := a.table.Insert(s.detour.NoRoom, uint64(s.copyAt)); err != nil {
					return err
				}
			}
			for _, f := range s.detour.Faults {
				if err := a.table.Insert(detour.FaultKey(f.At), f.To); err != nil {
					return err
				}
			}
			if len(s.detour.Faults) > 0 || s.detour.SharedFaults {
				sigs[unix.SIGSEGV], sigs[unix.SIGBUS] = true, true
			}
		}
		for g, to := range p.guards() {
			if err := a.table.Insert(guardKey(g), uint64(to)); err != nil {
				return err
			}
			if g.Byte != breakpoint {
				sigs[unix.SIGILL] = true
			}
		}
	}
	return errors.Join(tg.catchSignals(ctx, nil, sigs), tg.catchFaults(ctx))
}

// catchSites lays the net under the copies of breakpoints' instructions.
func (tg *target) catchSites(ctx context.Context, list []*site) error {
	for _, st := range list {
		if err := tg.catchCopy(st.moved, st.slot); err != nil {
			return fmt.Errorf("too many probes: %w", err)
		}
	}
	return tg.catchFaults(ctx)
}

// catchFaults has nets answer faults in copies, of which only a handler of the
// program's takes notice. One that it sets later is found by layNetsAgain.
func (tg *target) catchFaults(ctx context.Context) error {
	err := tg.catchSignals(ctx, nil, tg.faultsCaught())
	if errors.Is(err, tracee.ErrNoThread) {
		return nil // later: it matters only where the tracer is killed
	}
	return err
}

// faultsCaught gives the signals of faults in copies for which the program has
// handlers, and no net is there.
func (tg *target) faultsCaught() map[syscall.Signal]bool {
	out := map[syscall.Signal]bool{}
	for sig := range tg.faultSigs {
		if _, there := tg.actions[sig]; !there {
			out[sig] = true
		}
	}
	if len(out) == 0 {
		return nil
	}
	var caught uint64
	for line := range strings.Lines(caughtSignals(tg.proc.PID())) {
		if v, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			caught, _ = strconv.ParseUint(strings.TrimSpace(v), 16, 64) // the kernel's
		}
	}
	maps.DeleteFunc(out, func(sig syscall.Signal, _ bool) bool { return caught&(1<<(sig-1)) == 0 })
	return out
}

// catchCopy has the net show faults in a copy, which is at an address, as those
// of the originals, once it answers the signals of these.
func (tg *target) catchCopy(m insn.Moved, at symbols.Addr) error {
	memory, division := m.Faulting(uint64(at))
	for _, pt := range append(memory, division...) {
		to, ok := detour.CopyFault(pt.IP, int(pt.AddSP), asm.Reg(pt.Scratch))
		if !ok {
			continue // a net can't undo what the copy did; there is none such
		}
		if err := tg.area.table.Insert(detour.FaultKey(uint64(at)+uint64(pt.Off)), to); err != nil {
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

// leaveCopy takes from the net's table what it knows of a copy that no thread can
// be in.
func (tg *target) leaveCopy(m insn.Moved, at symbols.Addr) {
	memory, division := m.Faulting(uint64(at))
	for _, pt := range append(memory, division...) {
		tg.area.table.Remove(detour.FaultKey(uint64(at) + uint64(pt.Off)))
	}
}

// catchSignals has nets answer signals that none answers yet.
func (tg *target) catchSignals(ctx context.Context, t *tracee.Thread, sigs map[syscall.Signal]bool) error {
	a := tg.area
	for sig := range sigs {
		if _, ok := tg.actions[sig]; ok {
			continue
		}
		if _, err := a.catch(ctx, t, sig); err != nil {
			return err
		}
		act, err := a.proc.Sigaction(ctx, t, sig)
		if err != nil {
			return err
		}
		tg.actions[sig] = act
	}
	return nil
}

// guardKey is a guard's key in the net's table.
func guardKey(g plan.Guard) uint64 {
	if g.Byte == breakpoint {
		return g.At
	}
	return detour.FaultKey(g.At)
}

// retireGuards has threads that arrive at the guards of a patch that was
// taken out go on at the instruction itself.
func (tg *target) retireGuards(p *patch) {
	for _, g := range p.plan.Guards {
		tg.area.table.Retire(guardKey(g))
		delete(tg.patches.guards, symbols.Addr(g.At))
	}
}
