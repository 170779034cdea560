package probe

import (
	"context"
	"errors"
	"syscall"

	"kprobe/probe/area"
	"kprobe/probe/engine"
	"kprobe/probe/tracee"
)

// sessionHandler answers the tracer's events. The engine decides about threads, the session
// about which processes are probed.
type sessionHandler struct {
	engine.Handler
	s *Session
}

func (s *Session) handler() sessionHandler { return sessionHandler{engine.HandlerOf(s.engine), s} }

// Fork implements tracee.Handler. The child stands before its first instruction.
//
// A child with memory of its own has a copy of every breakpoint and, without Follow, no tracer
// to answer them: its text is made clean before it runs. With Follow its text is made clean
// too, and then it is armed as a process of its own. Calls that were active return in both.
//
// A child that shares the parent's memory (vfork, posix_spawn, CLONE_VM) meets the parent's
// probes until it executes another program. Its hits count as the parent's, and it stays traced
// until then. With Follow the new program is probed.
func (h sessionHandler) Fork(parent *tracee.Thread, child *tracee.Process, kind tracee.ForkKind) (follow bool) {
	s := h.s
	tg := s.engine.Targets[parent.Process().PID()]
	if tg == nil {
		return false
	}
	if kind != tracee.Fork {
		s.engine.Targets[child.PID()] = tg.Sharing(child)
		tg.SetSequences()
		return true
	}
	if tg.Area != nil {
		tg.CleanChild(context.WithoutCancel(s.engine.Run), child)
	}
	if !s.follows(child) || s.engine.Run.Err() != nil {
		return false
	}
	if err := s.engine.Adopt(child, nil); err != nil {
		s.engine.Warnf("child %d is not followed: %v", child.PID(), err)
		return false
	}
	kid := s.engine.Targets[child.PID()]
	kid.Child = true
	// Thousands of probes take the child a second. The parent doesn't wait for them.
	if err := parent.LetRun(); err != nil {
		s.engine.Logf("let process %d run while its child is armed: %v", tg.Proc.PID(), err)
	}
	if err := kid.ArmAsIn(s.engine.Run, tg); err != nil && s.engine.Run.Err() == nil {
		s.engine.Warnf("child %d: %v", child.PID(), err)
	}
	return true
}

// Exec implements tracee.Handler. The old image is gone with everything in it. The definitions
// are armed again in the new one, unless the process is a child that isn't followed.
func (h sessionHandler) Exec(p *tracee.Process) {
	s := h.s
	old := s.engine.Targets[p.PID()]
	if s.arrived(p, old) || old == nil {
		return
	}
	wasMain := old.IsMain()
	old.LeaveSpace()
	if s.engine.Closed {
		delete(s.engine.Targets, p.PID())
		return // it is being left
	}
	if !s.keeps(p, wasMain) || s.engine.Run.Err() != nil && old.Child {
		delete(s.engine.Targets, p.PID())
		s.engine.LetGo(p)
		return
	}
	if err := s.engine.Adopt(p, nil); err != nil {
		s.engine.SayUnarmed(p.PID(), err)
		delete(s.engine.Targets, p.PID())
		s.engine.LetGo(p)
		return
	}
	tg := s.engine.Targets[p.PID()]
	tg.Load, tg.Child = &engine.Loading{Replaced: true}, old.Child
	if err := tg.ArmDefs(s.engine.Run, s.engine.Events.Definitions()); err != nil {
		s.engine.SayUnarmed(p.PID(), tg.OrExecuted(s.engine.Run, err))
	}
}

// Orphan implements tracee.OrphanKeeper. The target that made the child is gone, and with it
// what kprobe knew about it. But the child has its memory file mapped, and the journal in it
// says what to remove.
func (h sessionHandler) Orphan(child *tracee.Process) {
	if err := cleanOrphan(h.s.engine.Run, child); err != nil && !errors.Is(err, tracee.ErrGone) {
		h.s.engine.Warnf("child %d of a process that is gone keeps probes: %v", child.PID(), err)
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
	if p.PID() == s.engine.Started {
		s.status, s.hasStatus = status, true
	}
	if status.Signaled() && len(s.killed) < maxKilled {
		s.killed = append(s.killed, Death{PID: p.PID(), Signal: status.Signal()})
	}
	delete(s.expected, p.PID())
	if tg := s.engine.Targets[p.PID()]; tg != nil {
		tg.LeaveSpace()
		delete(s.engine.Targets, p.PID())
	}
	s.engine.Alone.Store(len(s.engine.Targets) == 0)
}
