package probe

import (
	"context"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// sigaction asks what the program does on a signal.
func (a *area) sigaction(ctx context.Context, sig syscall.Signal) (detour.Action, error) {
	act, err := a.proc.Sigaction(ctx, nil, sig)
	return detour.Action{
		Handler: uint64(act.Handler), Flags: act.Flags, Restorer: uint64(act.Restorer), Mask: act.Mask,
	}, err
}

func (a *area) setSigaction(ctx context.Context, sig syscall.Signal, act detour.Action) error {
	return a.proc.SetSigaction(ctx, nil, sig, tracee.Sigaction{
		Handler: symbols.Addr(act.Handler), Flags: act.Flags, Restorer: symbols.Addr(act.Restorer), Mask: act.Mask,
	})
}

// catch makes the net the target's action on a signal, chained before the
// program's own. It may be called again: a net that the program has replaced
// since is put in front of the new action.
func (a *area) catch(ctx context.Context, sig syscall.Signal) error {
	old, err := a.sigaction(ctx, sig)
	if err != nil {
		return err
	}
	if old.Handler == a.net.Handler {
		return nil
	}
	a.netData.SetAction(int(sig), old)
	a.file.store64(a.file.layout.Header.Off+headerNet, a.net.Handler)
	a.nets[sig] = old
	if err := a.setSigaction(ctx, sig, a.net.Action(old)); err != nil {
		return err
	}
	if sig == unix.SIGTRAP {
		return a.proc.GuardTrap(ctx, nil)
	}
	return nil
}

// removeNet gives the program its actions back. It reports whether the net's
// code may still be called: when the program has put a handler of its own over
// the net, that handler may chain to it.
func (a *area) removeNet(ctx context.Context) (chained bool, err error) {
	var errs []error
	for sig, old := range a.nets {
		now, err := a.sigaction(ctx, sig)
		switch {
		case err != nil:
			errs = append(errs, err)
			chained = true
			continue
		case now.Handler <= 1:
			// SIG_DFL or SIG_IGN, by the program or by the kernel, which resets
			// the action when a breakpoint is hit with SIGTRAP blocked: nobody
			// calls the net any more.
			delete(a.nets, sig)
			continue
		case now.Handler != a.net.Handler:
			chained = true
			continue
		}
		if err := a.setSigaction(ctx, sig, old); err != nil {
			errs = append(errs, err)
			chained = true
			continue
		}
		delete(a.nets, sig)
	}
	return chained, errors.Join(errs...)
}

// leaveChild gives a forked child, whose copy of the text is clean, its own
// actions back. What is mapped stays: it is inherited, unused and gone at
// exec.
func (a *area) leaveChild(ctx context.Context) error {
	kid := *a
	kid.nets = map[syscall.Signal]detour.Action{}
	for sig, act := range a.nets {
		kid.nets[sig] = act
	}
	_, err := kid.removeNet(ctx)
	return err
}

// catchFor lays the net under what patches need a tracer for: loads that may
// fault, and guards.
func (tg *target) catchFor(ctx context.Context, list []*patch) error {
	a := tg.area
	sigs := map[syscall.Signal]bool{}
	for _, p := range list {
		for _, s := range p.stages {
			if s.detour == nil {
				continue
			}
			for _, f := range s.detour.Faults {
				if err := a.table.Insert(f.At, f.To); err != nil {
					return err
				}
				sigs[unix.SIGSEGV], sigs[unix.SIGBUS] = true, true
			}
		}
		for _, g := range p.plan.Guards {
			to, ok := p.entry(symbols.Addr(g.At))
			if !ok {
				continue
			}
			if err := a.table.Insert(g.At, uint64(to)); err != nil {
				return err
			}
			if g.Byte != breakpoint {
				sigs[unix.SIGILL] = true
			}
		}
	}
	for sig := range sigs {
		if _, ok := tg.actions[sig]; ok {
			continue
		}
		if err := a.catch(ctx, sig); err != nil {
			return err
		}
		act, err := a.proc.Sigaction(ctx, nil, sig)
		if err != nil {
			return err
		}
		tg.actions[sig] = act
	}
	return nil
}

// retireGuards has threads that arrive at the guards of a patch that was
// taken out go on at the instruction itself.
func (tg *target) retireGuards(p *patch) {
	for _, g := range p.plan.Guards {
		tg.area.table.Retire(g.At)
		delete(tg.patches.guards, symbols.Addr(g.At))
	}
}
