package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// NewThread implements tracee.Handler.
func (h *handler) NewThread(t *tracee.Thread) {
	if tg := (*Session)(h).targets[t.Process().PID()]; tg != nil {
		tg.thread(t)
		tg.noteComm(t)
	}
}

// noteComm remembers a thread's name for hits that are read after its end.
func (tg *target) noteComm(t *tracee.Thread) {
	if tg.tap != nil {
		tg.tap.numbers.learn(t.TID())
		tg.tap.note(t.TID(), t.Comm())
	}
}

// ThreadExit implements tracee.Handler.
func (h *handler) ThreadExit(t *tracee.Thread) {
	if tg := (*Session)(h).targets[t.Process().PID()]; tg != nil {
		tg.noteComm(t)
		tg.forgetThread(t.TID())
	}
}

// Fork implements tracee.Handler. The child stands before its first
// instruction.
//
// A child with memory of its own has a copy of every breakpoint and, without
// Follow, no tracer to answer them: its text is made clean before it runs.
// With Follow it is made clean too and then armed as a process of its own;
// calls that were under way return in both.
//
// A child that shares the parent's memory (vfork, posix_spawn, CLONE_VM) meets
// the parent's probes until it executes another program: its hits there are the
// parent's, and it stays traced until then. With Follow the program is probed.
func (h *handler) Fork(parent *tracee.Thread, child *tracee.Process, kind tracee.ForkKind) (follow bool) {
	s := (*Session)(h)
	tg := s.targets[parent.Process().PID()]
	if tg == nil {
		return false
	}
	if kind != tracee.Fork {
		s.targets[child.PID()] = tg.shared(child)
		return true
	}
	if tg.area != nil {
		tg.cleanChild(s.run, child)
	}
	if !s.opts.Follow || s.run.Err() != nil {
		return false
	}
	if err := s.adopt(child); err != nil {
		s.warnf("child %d is not followed: %v", child.PID(), err)
		return false
	}
	kid := s.targets[child.PID()]
	kid.child = true
	if err := kid.armDefs(s.run, s.definitions()); err != nil && s.run.Err() == nil {
		s.warnf("child %d: %v", child.PID(), err)
	}
	return true
}

func (s *Session) definitions() []*defOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*defOf(nil), s.defs...)
}

// shared makes the target of a child that shares the parent's memory: the
// same sites and the same area, seen through the child.
func (tg *target) shared(child *tracee.Process) *target {
	kid := *tg
	kid.proc, kid.borrowed, kid.child = child, true, true
	kid.threads = map[int]*thread{}
	kid.calls = newCalls()
	return &kid
}

// cleanChild takes kprobe out of a forked child's copy of the memory: text,
// landings on its stack, the net's signal action.
func (tg *target) cleanChild(ctx context.Context, child *tracee.Process) {
	if err := tg.cleanText(child); err != nil {
		tg.s.warnf("child %d keeps probes in its text: %v", child.PID(), err)
	}
	for _, in := range tg.area.landingOf {
		if in != nil {
			restoreSlot(child, tg.area, in)
		}
	}
	if err := tg.restoreReturns(child); err != nil {
		tg.s.warnf("child %d returns through kprobe's code: %v", child.PID(), err)
	}
	kid := *tg.area
	kid.proc = child
	kid.code = &code{proc: child, pieces: tg.area.code.pieces}
	if err := child.SetScratch(kid.scratch.start, kid.scratch.start+pageSize); err != nil {
		tg.s.logf("child %d: %v", child.PID(), err)
		return
	}
	if err := kid.leaveChild(ctx); err != nil {
		tg.s.logf("child %d: %v", child.PID(), err)
	}
}

// restoreSlot puts the real return address back where a landing stands.
func restoreSlot(p *tracee.Process, a *area, in *instance) {
	var now [8]byte
	at := a.landing + symbols.Addr(in.landing*landingSize)
	if _, err := p.ReadMemory(now[:], in.slot); err != nil || le64(now[:]) != uint64(at) {
		return
	}
	_ = p.WriteMemory(put64(uint64(in.ra)), in.slot)
}

// Exec implements tracee.Handler: the old image is gone with all that was in
// it. The definitions are armed anew in the new one, unless it is that of a child
// that isn't followed.
func (h *handler) Exec(p *tracee.Process) {
	s := (*Session)(h)
	old := s.targets[p.PID()]
	if old == nil {
		return
	}
	old.drop()
	if s.closed {
		delete(s.targets, p.PID())
		return // it is being left
	}
	if old.borrowed && !s.opts.Follow || s.run.Err() != nil && old.child {
		delete(s.targets, p.PID())
		s.letGo(p)
		return
	}
	if err := s.adopt(p); err != nil {
		s.warnf("after exec of %d: %v", p.PID(), err)
		delete(s.targets, p.PID())
		s.letGo(p)
		return
	}
	tg := s.targets[p.PID()]
	tg.load, tg.child = &loading{replaced: true}, old.child
	if err := tg.armDefs(s.run, s.definitions()); err != nil {
		s.warnf("after exec of %d: %v", p.PID(), err)
	}
}

func (s *Session) letGo(p *tracee.Process) {
	if err := p.Detach(s.run, nil); err != nil && !errors.Is(err, tracee.ErrGone) {
		s.logf("detach %d: %v", p.PID(), err)
	}
}

// Orphan implements tracee.OrphanKeeper. The target that made the child is gone,
// and what was known of it: the child has a mapping of its memory file, whose
// journal tells what to take out.
func (h *handler) Orphan(child *tracee.Process) {
	if err := cleanOrphan((*Session)(h).run, child); err != nil && !errors.Is(err, tracee.ErrGone) {
		(*Session)(h).warnf("child %d of a process that is gone keeps probes: %v", child.PID(), err)
	}
}

func cleanOrphan(ctx context.Context, child *tracee.Process) error {
	m, err := findMemfile(child.PID())
	if err != nil || m == nil {
		return err
	}
	left, err := openLeft(child, m, nil)
	if err != nil || left == nil {
		return err
	}
	threads := child.Threads()
	err = errors.Join(left.leaveLongJumps(threads), left.restoreText())
	empty, terr := left.takeOut(threads)
	if empty {
		terr = left.unmap(ctx)
	}
	return errors.Join(err, terr)
}

// Exited implements tracee.Handler.
func (h *handler) Exited(p *tracee.Process, status syscall.WaitStatus) {
	s := (*Session)(h)
	if p.PID() == s.started {
		s.status, s.hasStatus = status, true
	}
	if tg := s.targets[p.PID()]; tg != nil {
		tg.drop()
		delete(s.targets, p.PID())
	}
	s.alone.Store(len(s.targets) == 0)
}

// drop forgets everything of an image that is gone; nothing is written.
func (tg *target) drop() {
	if tg.borrowed {
		return
	}
	for p := range tg.placed {
		p.ev.places.Add(-1)
	}
	clear(tg.placed)
	clear(tg.gone)
	tg.libs, tg.pending = nil, nil
	tg.retired = nil
	tg.sites = map[symbols.Addr]*site{}
	tg.bySlot = map[symbols.Addr]*site{}
	tg.patches = newPatches()
	if tg.tap != nil {
		tg.tap.over.Store(true)
	}
	// The memory file stays mapped here until the session is closed: its
	// hits are still to be read, its counters to be added up.
	tg.area = nil
}

// Close takes every probe out of every process, in order, and leaves them
// running; see detach. A command that was started runs on, too. It may be
// called more than once; a closed session can't be used again. In a handler it does
// nothing and returns ErrInHandler.
func (s *Session) Close(ctx context.Context) error {
	if s.inHandler() {
		return ErrInHandler
	}
	err := s.tracer.Do(func() error {
		if s.closed {
			return nil
		}
		s.closed, s.stopping = true, true
		var errs []error
		// Children that share a target's memory are let go once its text is clean.
		for _, borrowed := range []bool{false, true} {
			for pid, tg := range s.targets {
				if tg.borrowed != borrowed {
					continue
				}
				if err := tg.detach(ctx); err != nil && !errors.Is(err, tracee.ErrGone) {
					errs = append(errs, err)
				}
				delete(s.targets, pid)
			}
		}
		s.alone.Store(true)
		return errors.Join(errs...)
	})
	for _, t := range s.taps {
		if t.done != nil {
			t.cancel()
			<-t.done
		}
	}
	return errors.Join(err, s.tracer.Close())
}

// Pauses tells for how long the session's processes have stood still for it: at
// the longest, and all times together. Breakpoints' hits, which stop one thread,
// are not in it. It may be called by any goroutine, after Close too.
func (s *Session) Pauses() (longest, sum time.Duration) { return s.tracer.Pauses() }

// detach takes kprobe out of the target and lets it go:
//
//  1. every thread is stopped;
//  2. the text gets its bytes back, so that no thread can enter a copy or a
//     landing any more;
//  3. threads that stand in a copy are moved: to the site if the instruction
//     had no effect yet, else to where it leads;
//  4. landings on stacks are replaced by the addresses they stand for;
//  5. the program's SIGTRAP action is put back, and what was mapped is
//     unmapped;
//  6. the threads run on.
//
// A thread that could not be stopped (it waits in the kernel, uninterruptibly)
// meets clean text when its wait ends. Where it stands in kprobe's memory, or
// may, 5 is left out and reported: the memory, the journal and the net stay.
func (tg *target) detach(ctx context.Context) error {
	clean := false
	err := tg.proc.Detach(ctx, func(stopped []*tracee.Thread) error {
		if tg.borrowed || tg.dying || tg.area == nil {
			clean = true
			return nil
		}
		empty := false
		err := withSharers(ctx, tg.proc, stopped, func(stopped []*tracee.Thread) (err error) {
			empty, err = tg.clear(stopped)
			return err
		})
		if empty {
			// A thread may have to wait for its child before it can unmap.
			err = errors.Join(err, tg.area.close(ctx))
			tg.area = nil
		}
		clean = err == nil
		return err
	})
	if clean {
		// Nothing is left for late threads to meet.
		return tg.ignoreLate(err)
	}
	return err
}

// clear does steps 2 to 4 of detach. It reports whether kprobe's memory may go:
// no thread is in it, nor will be.
func (tg *target) clear(stopped []*tracee.Thread) (empty bool, err error) {
	var errs []error
	errs = append(errs, tg.restorePatches(tg.patches.list))
	errs = append(errs, tg.restoreSites(slices.Collect(maps.Values(tg.sites))))
	for _, t := range stopped {
		if err := tg.moveOut(t); err != nil {
			errs = append(errs, err)
		}
	}
	for _, in := range tg.area.landingOf {
		if in != nil {
			restoreSlot(tg.proc, tg.area, in)
		}
	}
	tg.tap.over.Store(true)
	if err := tg.restoreReturns(tg.proc); err != nil {
		// Their memory stays for the calls that are under way.
		return false, errors.Join(append(errs, err)...)
	}
	err = lateIn(tg.proc, tg.area.code.pieces)
	return err == nil, errors.Join(append(errs, err)...)
}

// lateIn finds a thread that could not be stopped and may run on in one of the
// pieces.
func lateIn(p *tracee.Process, pieces []*piece) error {
	for _, t := range late(p) {
		pc, ok := t.WaitsAt()
		if !ok {
			return fmt.Errorf("thread %d did not stop: the text is restored, kprobe's memory stays mapped", t.TID())
		}
		for _, in := range pieces {
			if pc >= in.start && pc < in.end() {
				return fmt.Errorf("thread %d waits in the kernel, uninterruptibly, in code of kprobe's: the text is restored, kprobe's memory stays mapped", t.TID())
			}
		}
	}
	return nil
}

// moveOut gets a stopped thread out of a copy: back to the site if the
// instruction had no effect yet, else on to where it leads.
func (tg *target) moveOut(t *tracee.Thread) error {
	regs, err := t.Regs()
	if err != nil {
		return nil // gone
	}
	tg.area.nets.Look(symbols.Addr(regs.Rip))
	if stage, at := tg.stageOf(regs); stage != nil {
		t.CancelStep()
		// One landing may return to another.
		for regs = at; stage != nil; stage = tg.patches.stageAt(symbols.Addr(regs.Rip)) {
			out, ok := stage.leave(regs, tg.proc)
			if !ok || out.Rip == regs.Rip && out.Rsp == regs.Rsp {
				return fmt.Errorf("thread %d can't be moved out of a detour", t.TID())
			}
			regs = out
		}
		return t.SetRegs(regs)
	}
	st := tg.siteOfCopy(symbols.Addr(regs.Rip))
	if st == nil {
		return nil
	}
	t.CancelStep()
	if out, ok := st.leave(regs, tg.proc); ok {
		return t.SetRegs(out)
	}
	return fmt.Errorf("thread %d can't be moved out of the copy of %s", t.TID(), st.name)
}
