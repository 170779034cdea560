package probe

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"sync/atomic"
	"time"

	"kprobe/probe/engine"
	"kprobe/probe/starts"
	"kprobe/probe/tracee"
)

// Processes that begin while a session runs
//
// If the rights allow it, the kernel holds a process that is about to execute a wanted file in
// execve (package starts). The process is seized there, in its old image, and let go. Its next
// stop is after execve, before the first instruction of the new image. There it is armed like a
// process that the session has started.
//
// To seize the process, the tracer needs a lock of the process (cred_guard_mutex) that execve
// takes as well. execve opens the main file before it takes the lock, and the file of an
// interpreter while it holds it. In the latter case the tracer's thread has to wait for the
// lock. So the process is let go after seizeTime in any case.
//
// A process that could not be held is attached to while it runs.

// StartMeans is the way in which a session notices that processes begin.
type StartMeans = starts.Means

// The means, from the worst to the best: by looking at /proc, by a message of the kernel after
// the start, by a question of the kernel before it.
const (
	StartLooks = starts.Looks // by looks at /proc
	StartNews  = starts.News  // by the kernel, once they have
	StartGate  = starts.Gate  // by the kernel, before they do
)

// StartLookEvery is the interval between looks at /proc.
const StartLookEvery = starts.LookEvery

const (
	// seizeTime is how long the tracer's thread may wait to seize a process, if it isn't
	// known that the lock is free.
	seizeTime = 20 * time.Millisecond
	// lockedTime is the same if the lock is known to be taken. A waiter gets it once execve
	// continues, mostly before the stop after it.
	lockedTime = time.Millisecond
	// execTime is how long an execve may take after that.
	execTime = 2 * time.Second
	// maxWarnedStarts bounds the number of warnings about processes that could not be
	// taken.
	maxWarnedStarts = 5
)

// expectedStart is a process in execve.
type expectedStart struct {
	p *tracee.Process // nil: it was traced before
}

// startCounts count processes that began.
type startCounts struct{ held, late, missed atomic.Int64 }

// follows reports whether a child with memory of its own is probed.
func (s *Session) follows(child *tracee.Process) bool {
	return s.engine.Opts.Follow || s.engine.Opts.Wait != nil && s.engine.Opts.Wait.Is(child.PID())
}

// keeps reports whether a process of the session that has executed a program stays in the
// session.
func (s *Session) keeps(p *tracee.Process, wasMain bool) bool {
	if s.engine.Opts.Wait != nil && !s.engine.Opts.Follow {
		return s.engine.Opts.Wait.Is(p.PID())
	}
	return wasMain || s.engine.Opts.Follow
}

// await takes processes as they begin, until stop is called.
func (s *Session) await(ctx context.Context) (stop func()) {
	want := s.engine.Opts.Wait
	if want == nil {
		return func() {}
	}
	if err := s.engine.Tracer.Stay(); err != nil {
		return func() {}
	}
	a := &awaiting{s: s, ctx: ctx}
	s.starts = &a.counts
	ready := make(chan struct{})
	a.watch = starts.Begin(starts.Want{
		Files: want.Files, Learn: want.Names, Hold: want.Hold, Is: want.Is,
		Held: func(list []*starts.Held) {
			<-ready
			a.held(list)
		},
		Began: func(pid int) {
			<-ready
			a.began(pid)
		},
	})
	close(ready)
	if want.Begun != nil {
		want.Begun(a.watch.Means())
	}
	return func() {
		a.watch.Close()
		held, late, missed := a.counts.held.Load(), a.counts.late.Load(), a.counts.missed.Load()
		s.engine.Logf("%d processes were taken as they began, %d when they ran already", held, late)
		if missed > 0 {
			s.engine.Warnf("%d processes that began were not taken, or ended before", missed)
		}
		if n := a.watch.Released(); n > 0 {
			s.engine.Warnf("%d processes were let go before their probes were in: they began faster than they could be taken", n)
		}
	}
}

// awaiting is the state of await.
type awaiting struct {
	s      *Session
	ctx    context.Context
	watch  *starts.Watch
	counts startCounts
	warned atomic.Int32
}

// held seizes processes that wait in execve, and lets them go.
func (a *awaiting) held(list []*starts.Held) {
	_ = a.s.engine.Tracer.Do(func() error { // fails only at the end
		for _, h := range list {
			if h.Waits() {
				a.hold(h)
			}
		}
		return nil
	})
	for _, h := range list {
		h.Let()
	}
}

// hold seizes a process, on the tracer's thread.
func (a *awaiting) hold(h *starts.Held) {
	s := a.s
	if s.engine.Closed || s.engine.Stopping || a.ctx.Err() != nil {
		h.Let()
		return
	}
	e, patience := &expectedStart{}, seizeTime
	if s.engine.Targets[h.PID] == nil {
		var err error
		switch locked, known := h.InInterpreter(); {
		case locked:
			patience = lockedTime
		case known:
			patience = cmp.Or(s.engine.Opts.Wait.Hold, starts.HoldTime)
		}
		letGo := time.AfterFunc(patience, h.Let)
		e.p, err = s.engine.Tracer.Attach(a.ctx, h.PID)
		letGo.Stop()
		if err != nil && !errors.Is(err, tracee.ErrAttached) {
			h.Let()
			a.miss(h.PID, err)
			return
		}
	}
	s.expected[h.PID] = e
	h.Let()
	if e.p != nil {
		time.AfterFunc(min(patience, seizeTime), func() { a.check(h.PID, e, execTime) })
	}
}

// check looks at the outcome of an execve. It may have failed, or it was over before the
// process was seized.
func (a *awaiting) check(pid int, e *expectedStart, more time.Duration) {
	s := a.s
	_ = s.engine.Tracer.Do(func() error {
		if s.expected[pid] != e || s.engine.Closed {
			return nil
		}
		if s.engine.Opts.Wait.Is(pid) {
			// A stop behind execve, if there is one, waits for this thread: it comes first.
			stop, cancel := context.WithTimeout(a.ctx, seizeTime)
			defer cancel()
			if e.p.Executed(stop) {
				return nil
			}
			delete(s.expected, pid)
			a.take(e.p)
			return nil
		}
		if more > 0 {
			time.AfterFunc(more, func() { a.check(pid, e, 0) })
			return nil
		}
		delete(s.expected, pid)
		s.engine.LetGo(e.p)
		a.watch.Again(pid)
		return nil
	})
}

// arrived arms a process that was expected to execute a wanted program, and reports whether it
// was expected. old is its target before that, or nil.
func (s *Session) arrived(p *tracee.Process, old *engine.Target) bool {
	if s.expected[p.PID()] == nil {
		return false
	}
	delete(s.expected, p.PID())
	if old != nil {
		old.LeaveSpace()
		delete(s.engine.Targets, p.PID())
	}
	if s.engine.Closed || s.engine.Stopping || !s.engine.Opts.Wait.Is(p.PID()) {
		s.engine.LetGo(p)
		return true
	}
	if err := s.engine.Adopt(p, nil); err != nil {
		s.engine.Warnf("process %d: %v", p.PID(), err)
		s.engine.LetGo(p)
		return true
	}
	tg := s.engine.Targets[p.PID()]
	tg.Load = &engine.Loading{Replaced: true}
	s.starts.held.Add(1)
	if err := tg.ArmDefs(s.engine.Run, s.engine.Events.Definitions()); err != nil && s.engine.Run.Err() == nil {
		s.engine.Warnf("process %d: %v", p.PID(), err)
	}
	s.engine.Alone.Store(false)
	return true
}

// began attaches to a process that runs already.
func (a *awaiting) began(pid int) {
	s := a.s
	there := false
	err := s.engine.Tracer.Do(func() error {
		there = s.engine.Closed || s.engine.Stopping || s.engine.Targets[pid] != nil || s.expected[pid] != nil
		return nil
	})
	if there || err != nil || a.ctx.Err() != nil {
		return
	}
	s.takeOver(a.ctx, pid)
	ready, err := s.engine.Prepare(a.ctx, pid, s.engine.Opts.Expect)
	if err != nil {
		return // the end
	}
	err = s.engine.Tracer.Do(func() error {
		if s.engine.Closed || s.engine.Stopping || s.engine.Targets[pid] != nil || s.expected[pid] != nil {
			return nil
		}
		p, err := s.engine.Tracer.Attach(a.ctx, pid)
		if err != nil {
			return err
		}
		return a.adopt(p, ready)
	})
	if err != nil {
		a.miss(pid, err)
	}
}

// take adopts a process that was seized in its new image.
func (a *awaiting) take(p *tracee.Process) {
	if err := a.adopt(p, nil); err != nil {
		a.miss(p.PID(), err)
	}
}

func (a *awaiting) adopt(p *tracee.Process, ready *engine.Prepared) error {
	s := a.s
	if err := s.engine.Adopt(p, ready); err != nil {
		s.engine.LetGo(p)
		return err
	}
	tg := s.engine.Targets[p.PID()]
	tg.TakeSharers()
	s.engine.Alone.Store(false)
	a.counts.late.Add(1)
	return tg.ArmDefs(s.engine.Run, s.engine.Events.Definitions())
}

// miss counts a process that was not taken, and warns about the first few. It says nothing
// about a process that has ended.
func (a *awaiting) miss(pid int, err error) {
	a.counts.missed.Add(1)
	if a.ctx.Err() != nil || errors.Is(err, tracee.ErrGone) || errors.Is(err, tracee.ErrZombie) || errors.Is(err, fs.ErrNotExist) {
		return
	}
	if n := a.warned.Add(1); n <= maxWarnedStarts {
		a.s.engine.Warnf("process %d is not taken: %v", pid, err)
	}
}
