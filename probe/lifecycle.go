package probe

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/area"
	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// NewThread implements tracee.Handler.
func (h handler) NewThread(t *tracee.Thread) {
	if tg := h.s.targets[t.Process().PID()]; tg != nil {
		tg.thread(t)
		tg.noteComm(t)
		tg.checkNumber(t)
	}
}

// noteComm remembers a thread's name for hits that are read after its end.
func (tg *target) noteComm(t *tracee.Thread) {
	if tg.feed != nil {
		tg.feed.numbers.Learn(t.TID())
		tg.feed.names.Born(t.TID(), t.Comm())
	}
}

// ThreadExit implements tracee.Handler.
func (h handler) ThreadExit(t *tracee.Thread) {
	if tg := h.s.targets[t.Process().PID()]; tg != nil {
		// Of one that is gone the name that was noted at its birth may be another than its
		// last: what is known since stays.
		if comm, err := procfs.Thread(t.Process().PID(), t.TID()).Comm(); err == nil && tg.feed != nil {
			tg.feed.names.Note(t.TID(), comm)
		}
		tg.forgetThread(t.TID())
	}
}

// sessionHandler answers the tracer's events: what threads do is the engine's, which
// processes are probed the session's.
type sessionHandler struct {
	handler
	s *Session
}

func (s *Session) handler() sessionHandler { return sessionHandler{handlerOf(s.engine), s} }

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
func (h sessionHandler) Fork(parent *tracee.Thread, child *tracee.Process, kind tracee.ForkKind) (follow bool) {
	s := h.s
	tg := s.targets[parent.Process().PID()]
	if tg == nil {
		return false
	}
	if kind != tracee.Fork {
		s.targets[child.PID()] = tg.sharing(child)
		tg.setSequences()
		return true
	}
	if tg.area != nil {
		tg.cleanChild(context.WithoutCancel(s.run), child)
	}
	if !s.follows(child) || s.run.Err() != nil {
		return false
	}
	if err := s.adopt(child, nil); err != nil {
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

func (s *engine) definitions() []*defOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*defOf(nil), s.defs...)
}

// cleanChild takes kprobe out of a forked child's copy of the memory: text,
// return trampolines on its stack, the fallback handler's signal action. What is mapped stays: it is
// inherited, unused and gone at exec.
func (tg *target) cleanChild(ctx context.Context, child *tracee.Process) {
	tg.cleanCopy(ctx, child, child.Threads())
}

// cleanCopy is cleanChild of a process that is stopped, maybe long after it was forked.
func (tg *target) cleanCopy(ctx context.Context, child *tracee.Process, stopped []*tracee.Thread) {
	kid := tg.area.Copied(child)
	kid.Unheld = tg.area.Unheld
	if err := kid.RestoreText(stopped); err != nil {
		tg.s.warnf("child %d keeps probes in its text: %v", child.PID(), err)
	}
	if err := errors.Join(kid.RestoreSlots(), kid.RestoreReturns()); err != nil {
		tg.s.warnf("child %d returns through kprobe's code: %v", child.PID(), err)
	}
	if err := child.SetScratch(kid.Scratch.Start, kid.Scratch.Start+memory.PageSize); err != nil {
		tg.s.logf("child %d: %v", child.PID(), err)
		return
	}
	if _, err := kid.Fallbacks.Remove(ctx); err != nil {
		tg.s.logf("child %d: %v", child.PID(), err)
	}
}

// Exec implements tracee.Handler: the old image is gone with all that was in
// it. The definitions are armed anew in the new one, unless it is that of a child
// that isn't followed.
func (h sessionHandler) Exec(p *tracee.Process) {
	s := h.s
	old := s.targets[p.PID()]
	if s.arrived(p, old) || old == nil {
		return
	}
	wasMain := old.isMain()
	old.leaveSpace()
	if s.closed {
		delete(s.targets, p.PID())
		return // it is being left
	}
	if !s.keeps(p, wasMain) || s.run.Err() != nil && old.child {
		delete(s.targets, p.PID())
		s.letGo(p)
		return
	}
	if err := s.adopt(p, nil); err != nil {
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

// Orphan implements tracee.OrphanKeeper. The target that made the child is gone,
// and what was known of it: the child has a mapping of its memory file, whose
// journal tells what to take out.
func (h sessionHandler) Orphan(child *tracee.Process) {
	if err := cleanOrphan(h.s.run, child); err != nil && !errors.Is(err, tracee.ErrGone) {
		h.s.warnf("child %d of a process that is gone keeps probes: %v", child.PID(), err)
	}
}

func cleanOrphan(ctx context.Context, child *tracee.Process) error {
	m, err := area.FindMemfile(child.PID())
	if err != nil || m == nil {
		return err
	}
	a, err := area.Open(child, m, nil)
	if err != nil || a == nil {
		return err
	}
	return a.Leave(ctx, child.Threads())
}

// maxKilled bounds Summary.Killed.
const maxKilled = 16

// Exited implements tracee.Handler.
func (h sessionHandler) Exited(p *tracee.Process, status syscall.WaitStatus) {
	s := h.s
	if p.PID() == s.started {
		s.status, s.hasStatus = status, true
	}
	if status.Signaled() && len(s.killed) < maxKilled {
		s.killed = append(s.killed, Death{PID: p.PID(), Signal: status.Signal()})
	}
	delete(s.expected, p.PID())
	if tg := s.targets[p.PID()]; tg != nil {
		tg.leaveSpace()
		delete(s.targets, p.PID())
	}
	s.alone.Store(len(s.targets) == 0)
}

// drop forgets everything of an image that is gone; nothing is written.
func (tg *target) drop() {
	tg.over = true
	for p := range tg.placed {
		p.ev.places.Add(-1)
	}
	clear(tg.placed)
	clear(tg.gone)
	clear(tg.lost)
	tg.libs, tg.pending = nil, nil
	tg.retired = nil
	tg.semaphores = semaphores{}
	tg.sites = map[symbols.Addr]*site{}
	tg.bySlot = map[symbols.Addr]*site{}
	tg.patches = newPatches()
	if tg.feed != nil {
		tg.feed.over.Store(true)
		tg.s.retireFeed(tg.feed)
	}
	tg.area = nil
}

// leave takes every probe out and leaves the processes. It does nothing the second
// time.
func (s *engine) leave(ctx context.Context) error {
	return s.tracer.Do(func() error {
		if s.closed {
			return nil
		}
		s.closed, s.stopping = true, true
		var errs []error
		var last []func()
		// Children that share a target's memory are let go once its text is clean.
		for _, main := range []bool{true, false} {
			for pid, tg := range s.targets {
				if tg.isMain() != main {
					continue
				}
				clean, err := tg.detach(ctx)
				if err != nil && !errors.Is(err, tracee.ErrGone) {
					errs = append(errs, err)
				}
				last = append(last, clean)
				delete(s.targets, pid)
			}
		}
		for _, clean := range last {
			clean()
		}
		s.alone.Store(true)
		return errors.Join(errs...)
	})
}

// detach takes kprobe out of the target and lets it go (undo.go). A thread that
// could not be stopped (it waits in the kernel, uninterruptibly) meets clean text
// when its wait ends. Where it stands in kprobe's memory, or may, or where something
// could not be undone, the memory, the journal and the fallback handler stay, and the error says
// why. last is to be called once all targets are left.
func (tg *target) detach(ctx context.Context) (last func(), err error) {
	last = func() {}
	if tg.isMain() && tg.unattended.was && !tg.dying && tg.area != nil {
		if last, err = tg.endLetGo(ctx); err != nil {
			return func() {}, err
		}
	}
	return last, tg.detachNow(ctx)
}

// detachNow is detach of a target that is ready for it.
func (tg *target) detachNow(ctx context.Context) error {
	clean := false
	err := tg.proc.Detach(ctx, func(stopped []*tracee.Thread) error {
		if !tg.isMain() || tg.dying || tg.area == nil {
			clean = true
			return nil
		}
		if tg.feed != nil {
			tg.feed.over.Store(true)
		}
		tg.area.Outside = tg.outside
		err := tg.area.Leave(ctx, stopped)
		tg.area = nil
		if err != nil {
			// What has to stay works without a tracer, and records nothing.
			if tg.feed != nil {
				tg.feed.disableAll()
			}
			return err
		}
		clean = true
		return nil
	})
	if clean {
		// Nothing is left for late threads to meet.
		return tg.ignoreLate(err)
	}
	return err
}

// outside gives the registers that a thread in a detour or a copy has in the
// program: at the instruction if it had no effect yet, else behind it.
func (tg *target) outside(regs *unix.PtraceRegs, trapped bool) (out *unix.PtraceRegs, inside bool, err error) {
	pc := symbols.Addr(regs.Rip)
	if st := tg.patches.noRoom[pc]; st != nil && trapped {
		at := *regs
		at.Rip = uint64(st.at)
		return &at, true, nil
	}
	if stage, at := tg.stageOf(regs); stage != nil {
		out, ok := stage.leave(at, tg.proc)
		if !ok {
			return nil, true, fmt.Errorf("its registers in the detour of %v can't be read", stage.at)
		}
		return out, true, nil
	}
	st := tg.siteOfCopy(pc)
	if st == nil {
		return nil, false, nil
	}
	out, ok := st.leave(regs, tg.proc)
	if !ok {
		return nil, true, fmt.Errorf("its registers in the copy of %s can't be read", st.name)
	}
	return out, true, nil
}
