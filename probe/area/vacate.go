package area

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/insn"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// vacate moves threads out of kprobe's memory, and changes what would lead them back, after the
// text was restored. Every thread must be stopped. If it succeeds, the memory may be unmapped.
func (a *Area) vacate(stopped []*tracee.Thread) error {
	var errs []error
	for _, t := range stopped {
		err := a.moveOut(t)
		if err == nil {
			err = t.EndSequence(a.holds)
		}
		if err == nil && (a.found || a.Unheld) && t.Interrupted(a.interrupted) {
			// Signals were not held since the tracer's death, or while the process was let go of.
			err = &InterruptedError{TID: t.TID()}
		}
		errs = append(errs, err)
	}
	errs = append(errs, a.RestoreSlots(), a.RestoreReturns(), a.lateIn())
	a.see(stopped)
	return errors.Join(errs...)
}

// see notes where threads continue, if there are fallback handlers of other kprobes: these may have to be
// changed, which must not happen under a thread in one.
func (a *Area) see(stopped []*tracee.Thread) {
	if files, err := FindMemfiles(a.Proc.PID()); err != nil || len(files) < 2 {
		return // after an error they stay
	}
	for _, t := range a.Proc.AllLate() {
		if pc, ok := t.WaitsAt(); ok { // lateIn is the rule for others
			a.Fallbacks.See(pc)
		}
	}
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil {
			continue // gone
		}
		a.Fallbacks.See(symbols.Addr(regs.Rip))
		t.Interrupted(func(pc symbols.Addr, _ bool) bool {
			a.Fallbacks.See(pc)
			return false
		})
	}
}

// InterruptedError says that a signal handler has interrupted a thread in kprobe's code and
// will return there. The memory stays for it.
type InterruptedError struct{ TID int }

func (e *InterruptedError) Error() string {
	return fmt.Sprintf("a signal has interrupted thread %d in code of kprobe's", e.TID)
}

// mostMoves bounds how often a thread is led from one piece of kprobe's code to another, as
// from a return trampoline to the next.
const mostMoves = 1 << 12

// moveOut moves a stopped thread out of kprobe's code to the corresponding place in the
// program, and answers its trap or fault if that was kprobe's.
func (a *Area) moveOut(t *tracee.Thread) error {
	now, err := t.Regs()
	if err != nil {
		return nil // gone
	}
	regs := *now
	trapped := t.AtTrap()
	if answered, err := a.answerLifted(t, &regs); answered || err != nil {
		return err
	}
	if trapped {
		regs.Rip-- // the int3 has had no effect
	}
	if !a.holds(symbols.Addr(regs.Rip)) {
		return nil
	}
	for range mostMoves {
		pc := symbols.Addr(regs.Rip)
		if !a.holds(pc) {
			return a.lead(t, &regs)
		}
		if a.Fallbacks.Holds(pc) {
			if !a.found && a.stepOut(t) {
				if now, err = t.Regs(); err != nil {
					return nil // gone
				}
				regs, trapped = *now, false
				continue
			}
			if !a.found {
				// The handler continues to the program's own action by itself.
				to := a.Fallbacks.Look(pc)
				if to == pc {
					return nil
				}
				regs.Rip = uint64(to)
				if err := t.SetRegs(&regs); err != nil && !errors.Is(err, tracee.ErrGone) {
					return err
				}
				return nil
			}
			return fmt.Errorf("thread %d is in a signal handler of an earlier kprobe", t.TID())
		}
		out, err := a.behind(t, &regs, trapped)
		if err != nil {
			return err
		}
		if out.Rip == regs.Rip && out.Rsp == regs.Rsp {
			break
		}
		regs, trapped = *out, false
	}
	return fmt.Errorf("thread %d can't be moved out of kprobe's code", t.TID())
}

// answerLifted answers the trap of a thread at a byte that kprobe has put back, and reports whether that was it.
func (a *Area) answerLifted(t *tracee.Thread, now *unix.PtraceRegs) (answered bool, err error) {
	regs := *now
	if t.AtTrap() {
		regs.Rip-- // the int3 has had no effect
		if a.lifted.has(regs.Rip) {
			return true, a.lead(t, &regs)
		}
		return false, nil
	}
	return a.lifted.has(regs.Rip) && t.DropFault(unix.SIGILL), nil // a guard: the program's instruction is there again
}

// mostInFallback bounds how many instructions of a fallback handler a thread executes.
const mostInFallback = 400

// stepOut steps a thread out of the fallback handler that it is in, and reports whether it
// succeeded. If the tracer is killed meanwhile, the thread's trap is still answered.
func (a *Area) stepOut(t *tracee.Thread) bool {
	if r, err := t.Regs(); err == nil && r.Rdi == uint64(unix.SIGTRAP) { // it may take the program's own trap for that of a step
		return t.StepOut(a.Fallbacks.Holds, mostInFallback)
	}
	return a.StepOut(t, a.Fallbacks.Holds, mostInFallback)
}

// StepOut is tracee.Thread.StepOut for a thread in kprobe's code. If the tracer is killed meanwhile, the fallback
// handler answers the thread's trap.
func (a *Area) StepOut(t *tracee.Thread, within func(symbols.Addr) bool, most int) bool {
	at := a.File.Layout.Header.Off + memory.HeaderSteps
	a.File.Add64(at, 1)
	defer a.File.Add64(at, ^uint64(0))
	return t.StepOut(within, most)
}

// lead makes a thread continue elsewhere. If it has met a trap, that was kprobe's. If it has
// met a fault, the fault occurs again with its instruction.
func (a *Area) lead(t *tracee.Thread, regs *unix.PtraceRegs) error {
	err := t.SetRegs(regs)
	if errors.Is(err, tracee.ErrGone) {
		return nil
	}
	if err != nil {
		return err // what it has met leads it on
	}
	if !t.DropTrap() {
		if sig, ok := t.Signal(); ok {
			t.DropFault(sig)
		}
	}
	t.CancelStep()
	return nil
}

// behind returns the registers with which a thread in kprobe's code continues in the program.
func (a *Area) behind(t *tracee.Thread, regs *unix.PtraceRegs, trapped bool) (*unix.PtraceRegs, error) {
	pc := symbols.Addr(regs.Rip)
	if cell, ok := a.cellOf(pc); ok {
		to, err := a.File.Get64(cell)
		out := *regs
		out.Rip = to
		return &out, err
	}
	if a.Outside != nil {
		out, inside, err := a.Outside(regs, trapped)
		if err != nil {
			return nil, fmt.Errorf("thread %d: %w", t.TID(), err)
		}
		if inside {
			return out, nil
		}
	}
	sites, err := a.journalled()
	if err != nil {
		return nil, err
	}
	for _, l := range sites {
		if symbols.Addr(l.Copy) == pc&^(memory.SlotSize-1) && l.Copy != 0 {
			return leaveCopyOf(&l, regs, a.Proc)
		}
	}
	return nil, fmt.Errorf("thread %d is in code that kprobe's journal doesn't know", t.TID())
}

// leaveCopyOf returns the registers with which a thread continues that is in a breakpoint's
// copy, if only the journal knows the breakpoint.
func leaveCopyOf(l *ring.Site, regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, error) {
	m, err := insn.Relocate(l.Before, l.Addr, l.Copy, insn.Options{})
	if err != nil {
		return nil, err
	}
	out, ok := AtPoint(m.Where(int(regs.Rip-l.Copy)), regs, mem)
	if !ok {
		return nil, fmt.Errorf("the copy of the instruction at %#x can't be left", l.Addr)
	}
	return out, nil
}
