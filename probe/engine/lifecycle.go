package engine

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// NewThread implements tracee.Handler.
func (h Handler) NewThread(t *tracee.Thread) {
	if tg := h.engine.Targets[t.Process().PID()]; tg != nil {
		tg.thread(t)
		tg.noteComm(t)
		tg.checkNumber(t)
	}
}

// noteComm remembers a thread's name for hits that are read after its end.
func (tg *Target) noteComm(t *tracee.Thread) {
	if tg.Feed != nil {
		tg.Feed.Numbers.Learn(t.TID())
		tg.Feed.Names.Born(t.TID(), t.Comm())
	}
}

// ThreadExit implements tracee.Handler.
func (h Handler) ThreadExit(t *tracee.Thread) {
	if tg := h.engine.Targets[t.Process().PID()]; tg != nil {
		// If the thread is gone, its name can't be read, and the one that was learned last
		// stays.
		if comm, err := procfs.Thread(t.Process().PID(), t.TID()).Comm(); err == nil && tg.Feed != nil {
			tg.Feed.Names.Note(t.TID(), comm)
		}
		tg.forgetThread(t.TID())
	}
}

// CleanChild removes kprobe from a forked child's copy of the memory: from its text, from return
// addresses on its stack, and from its signal actions. kprobe's memory stays mapped in the child,
// unused, until it executes a program.
func (tg *Target) CleanChild(ctx context.Context, child *tracee.Process) {
	tg.cleanCopy(ctx, child, child.Threads())
}

// cleanCopy is CleanChild for a stopped process, which may have been forked long ago.
func (tg *Target) cleanCopy(ctx context.Context, child *tracee.Process, stopped []*tracee.Thread) {
	kid := tg.Area.Copied(child)
	kid.Unheld = tg.Area.Unheld
	if err := kid.RestoreText(stopped); err != nil {
		tg.Engine.Warnf("child %d keeps probes in its text: %v", child.PID(), err)
	}
	if err := errors.Join(kid.RestoreSlots(), kid.RestoreReturns()); err != nil {
		tg.Engine.Warnf("child %d returns through kprobe's code: %v", child.PID(), err)
	}
	if err := child.SetScratch(kid.Scratch.Start, kid.Scratch.Start+memory.PageSize); err != nil {
		tg.Engine.Logf("child %d: %v", child.PID(), err)
		return
	}
	if _, err := kid.Fallbacks.Remove(ctx); err != nil {
		tg.Engine.Logf("child %d: %v", child.PID(), err)
	}
}

// drop forgets everything about an address space that is gone. It writes nothing to the target.
func (tg *Target) drop() {
	tg.over = true
	for p := range tg.Placed {
		p.Ev.places.Add(-1)
	}
	clear(tg.Placed)
	clear(tg.apart)
	tg.returning = 0
	clear(tg.lost)
	tg.awaited = awaited{}
	tg.Retired = retirement{}
	tg.Semaphores = semaphores{}
	tg.Sites = map[symbols.Addr]*Site{}
	tg.BySlot = map[symbols.Addr]*Site{}
	tg.Patches = newPatches()
	if tg.Feed != nil {
		tg.Feed.over.Store(true)
		tg.Engine.retireFeed(tg.Feed)
	}
	tg.Area = nil
}

// Leave removes every probe and detaches from the processes. It does nothing if it was called
// before.
func (s *Engine) Leave(ctx context.Context) error {
	return s.Tracer.Do(func() error {
		if s.Closed {
			return nil
		}
		s.Closed, s.Stopping = true, true
		var errs []error
		var last []func()
		// Children that share a target's memory are let go once its text is clean.
		for _, main := range []bool{true, false} {
			for pid, tg := range s.Targets {
				if tg.IsMain() != main {
					continue
				}
				if frozen := tracee.Frozen(pid); frozen != nil && main {
					s.Warnf("%v; its probes are taken out then", frozen)
				}
				clean, err := tg.detach(ctx)
				if err != nil && !errors.Is(err, tracee.ErrGone) {
					errs = append(errs, err)
				}
				last = append(last, clean)
				delete(s.Targets, pid)
			}
		}
		for _, clean := range last {
			clean()
		}
		s.Alone.Store(true)
		return errors.Join(errs...)
	})
}

// detach removes kprobe from the target and detaches from it (area.Area.Leave). A thread that
// could not be stopped, because it waits uninterruptibly in the kernel, finds clean text when its
// wait ends. If such a thread may be in kprobe's memory, or if something could not be undone, the
// memory, the journal and the fallback handlers stay, and the error says why. The caller must call
// last after all targets are left.
func (tg *Target) detach(ctx context.Context) (last func(), err error) {
	last = func() {}
	if tg.IsMain() && tg.unattended.was && !tg.dying && tg.Area != nil {
		if last, err = tg.endLetGo(ctx); err != nil {
			return func() {}, err
		}
	}
	return last, tg.detachNow(ctx)
}

// detachNow is detach for a target that is traced.
func (tg *Target) detachNow(ctx context.Context) error {
	if tg.IsMain() && !tg.dying && tg.Area != nil && !tg.unattended.was {
		tg.liftInPortions(ctx)
	}
	defer collecting.hold()()
	clean := false
	err := tg.Proc.Detach(ctx, func(stopped []*tracee.Thread) error {
		if !tg.IsMain() || tg.dying || tg.Area == nil {
			clean = true
			return nil
		}
		if tg.Feed != nil {
			tg.Feed.over.Store(true)
		}
		tg.Area.Outside = tg.outside
		err := tg.Area.Leave(ctx, stopped)
		tg.Area = nil
		if err != nil {
			// Patches that stay work without a tracer; their probes are switched off.
			if tg.Feed != nil {
				tg.Feed.DisableAll()
			}
			return err
		}
		clean = true
		return nil
	})
	if clean {
		// Threads that were not stopped find clean text.
		return tg.ignoreLate(err)
	}
	return err
}

// outside returns the program's registers for a thread in a detour or a copy: at the instruction if
// it has had no effect yet, else behind it. inside is false if the thread is in neither.
func (tg *Target) outside(regs *unix.PtraceRegs, trapped bool) (out *unix.PtraceRegs, inside bool, err error) {
	pc := symbols.Addr(regs.Rip)
	if st := tg.Patches.noRoom[pc]; !st.None() && trapped {
		at := *regs
		at.Rip = uint64(st.At)
		return &at, true, nil
	}
	if stage, at := tg.StageOf(regs); !stage.None() {
		out, ok := stage.Leave(at, tg.Proc)
		if !ok {
			return nil, true, fmt.Errorf("its registers in the detour of %v can't be read", stage.At)
		}
		return out, true, nil
	}
	st := tg.siteOfCopy(pc)
	if st == nil {
		return nil, false, nil
	}
	out, ok := st.leave(regs, tg.Proc)
	if !ok {
		return nil, true, fmt.Errorf("its registers in the copy of %s can't be read", st.name)
	}
	return out, true, nil
}
