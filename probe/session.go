package probe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"kprobe/fetch"
	"kprobe/probe/area"
	"kprobe/probe/engine"
	"kprobe/probe/tracee"
	"kprobe/probe/triggers"
	"kprobe/symbols"
)

// Session is a set of probes in a set of processes, from Attach or Start to Close. Any
// goroutine may call its methods; Run may be called by one at a time.
type Session struct {
	engine *engine.Engine

	users   map[*fetch.Def]*registered // probes that were registered; usersMu guards them
	usersMu sync.Mutex

	turns   []*area.Turn // until it has attached, or until it has left its probes alone; turnsMu guards them
	turnsMu sync.Mutex

	// The fields below belong to the tracer thread.
	expected  map[int]*expectedStart // processes in execve of what is waited for
	starts    *startCounts
	status    syscall.WaitStatus
	hasStatus bool
	killed    []Death
	released  bool // it was let go
	open      openList
}

func newSession(o Options) (*Session, error) {
	if o.Inject != nil && (o.Limit > 0 || o.Expire > 0 || len(o.Triggers) > 0) {
		return nil, ErrInjectControls
	}
	tr, err := tracee.New()
	if err != nil {
		return nil, err
	}
	files := o.Files
	if files == nil {
		files = new(symbols.Cache)
	}
	s := &Session{
		engine: engine.New(o, tr, files),
		users:  map[*fetch.Def]*registered{}, expected: map[int]*expectedStart{},
	}
	s.engine.Owner = sessionOwner{s}
	if s.engine.Triggers, err = triggers.New(o.Triggers, o.Detach); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(o.Triggers, func(t *fetch.Trigger) bool { return t.Action == fetch.Stacktrace }) {
		s.engine.Stacks.Store(true)
	}
	why := o.WhyStays()
	if s.engine.LetsGo = why == ""; o.LetGo && !s.engine.LetsGo {
		s.engine.Stays = why
		s.engine.Logf("processes stay traced: %s", why)
	}
	if o.Inject != nil {
		s.engine.Inject = &engine.Injecting{Injection: *o.Inject}
		s.engine.Opts.NoOptimize = o.NoOptimize || s.engine.Inject.NeedsTracer(o.Follows())
	}
	return s, tr.Handle(s.handler())
}

// Attach begins a session on running processes. It traces every thread of each, and stops none.
// If one process can't be traced, none is. Attach first removes what a killed kprobe left in
// them, like Recover.
//
// Errors are *NoProcessError, *TracedError, *PermissionError, and those of reading the
// processes' files. While another command changes detached probes of one of them, Attach waits for it; the error is a
// *BusyError after ten seconds.
func Attach(ctx context.Context, pids []int, o Options) (*Session, error) {
	s, err := newSession(o)
	if err != nil {
		return nil, err
	}
	if s.engine.Inject != nil && s.engine.Inject.NeedsTracer(len(pids) > 1) {
		s.engine.Opts.NoOptimize = true
	}
	ready := map[int]*engine.Prepared{}
	for _, pid := range pids {
		if err = tracee.Frozen(pid); err == nil {
			ready[pid], err = s.engine.Prepare(ctx, pid, o.Expect)
		}
		if err != nil {
			_ = s.Close(context.WithoutCancel(ctx))
			return nil, err
		}
	}
	if err := s.takeTurns(ctx, pids); err != nil {
		_ = s.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	for _, pid := range pids {
		var p *tracee.Process
		err := s.takeOver(ctx, pid)
		if err == nil {
			p, err = s.engine.Tracer.Attach(ctx, pid)
		}
		if err == nil {
			err = s.engine.Tracer.Do(func() error {
				if err := s.engine.Adopt(p, ready[pid]); err != nil {
					return err
				}
				s.engine.Targets[pid].TakeSharers()
				return nil
			})
			if err != nil {
				err = fmt.Errorf("process %d: %w", pid, err)
			}
		}
		if err != nil {
			_ = s.Close(context.WithoutCancel(ctx))
			return nil, err
		}
	}
	if !o.Detach {
		s.endTurns() // others see who traces the processes
	}
	s.engine.Heard()
	return s, nil
}

// takeTurns takes the turns of all processes, in an order that is the same for every session.
func (s *Session) takeTurns(ctx context.Context, pids []int) error {
	pids = slices.Compact(slices.Sorted(slices.Values(pids)))
	s.turnsMu.Lock()
	defer s.turnsMu.Unlock()
	for _, pid := range pids {
		t, err := area.TakeTurn(ctx, pid, turnPatience)
		if err != nil {
			return err
		}
		s.turns = append(s.turns, t)
	}
	return nil
}

// endTurns lets others change the processes.
func (s *Session) endTurns() {
	s.turnsMu.Lock()
	defer s.turnsMu.Unlock()
	for _, t := range s.turns {
		t.End()
	}
	s.turns = nil
}

// takeOver removes what an earlier kprobe left in a process: one that was killed, or, in a child that a process has
// forked, its parent's. A failure is only a warning, because attaching then says what it means. The error is that of a
// kprobe that lives.
func (s *Session) takeOver(ctx context.Context, pid int) error {
	if left, err := area.FindMemfile(pid); err != nil || left == nil && (!area.HasStrays(pid) || area.HasTracer(pid)) {
		return nil
	}
	if l, err := soonLive(pid, false); err == nil {
		l.Close()
		if !l.Detached {
			return tracee.AttachError(pid, tracee.TracedBy(pid, l.Tracer))
		}
	}
	if s.engine.Opts.Touched != nil {
		s.engine.Opts.Touched(pid)
	}
	found, err := area.Recover(ctx, []int{pid})
	switch {
	case err != nil:
		s.engine.Warnf("what an earlier kprobe left in process %d: %v", pid, err)
	case len(found) > 0:
		s.engine.Warnf("process %d: removing what an earlier kprobe left there", pid)
	}
	return nil
}

// Start begins a session on a command that it starts. The command is stopped before its first
// instruction, and runs once Run is called.
func Start(ctx context.Context, c Command, o Options) (*Session, error) {
	s, err := newSession(o)
	if err != nil {
		return nil, err
	}
	p, err := s.engine.Tracer.Start(ctx, tracee.Command(c))
	if err != nil {
		_ = s.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	s.engine.Started = p.PID()
	err = s.engine.Tracer.Do(func() error {
		err := s.engine.Adopt(p, nil)
		if err == nil {
			s.engine.Targets[p.PID()].Load = &engine.Loading{}
		}
		return err
	})
	if err != nil {
		_ = s.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return s, nil
}

// Pids lists the processes that are traced now, in no particular order.
func (s *Session) Pids() []int {
	var pids []int
	_ = s.engine.Tracer.Do(func() error {
		pids = s.pids()
		return nil
	})
	return pids
}

// pids lists the processes of the session. Children that run in their memory are among them
// only if children are followed.
func (s *Session) pids() (list []int) {
	for pid, tg := range s.engine.Targets {
		if tg.IsMain() || s.engine.Opts.Follow {
			list = append(list, pid)
		}
	}
	return list
}
