package probe

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Detach closes the session and leaves those probes in its processes that need no tracer. Their
// hits go into the rings from then on, where the newest records overwrite the oldest. It needs
// a session with Options.Detach.
//
// Probes that need a tracer are removed; out lists them with the reasons. If no probe remains,
// the error is ErrNothingLeft, and the session continues with what is left of it. After any
// other error it may be unknown whether a process was left; its probes are then either still
// found there, or were removed (Recover).
func (s *Session) Detach(ctx context.Context) (out []LeftOut, err error) {
	if s.inHandler() {
		return nil, ErrInHandler
	}
	defer s.engine.Heard()
	err = s.engine.Tracer.Do(func() error {
		if s.engine.Closed {
			return ErrClosed
		}
		for _, tg := range s.engine.Targets {
			if !tg.IsMain() {
				continue
			}
			if err := tg.MayLeaveTriggers(tg.LeftOut()); err != nil {
				return err
			}
			some, err := tg.LeaveOut(ctx)
			out = append(out, some...)
			if err != nil {
				return fmt.Errorf("process %d: %w", tg.Proc.PID(), err)
			}
		}
		for _, tg := range s.engine.Targets {
			if tg.IsMain() && len(tg.Placed) == 0 {
				return fmt.Errorf("process %d: %w", tg.Proc.PID(), ErrNothingLeft)
			}
		}
		return s.engine.LeaveAlone(ctx)
	})
	if err == nil {
		s.endTurns()
	}
	return out, err
}

// Close removes every probe from every process and leaves the processes running, also a command
// of Start. It may be called more than once. A closed session can't be used again. In a handler
// Close does nothing and returns ErrInHandler. On other errors a process keeps what could not
// be removed, and runs on; Recover can try again.
func (s *Session) Close(ctx context.Context) error {
	if s.inHandler() {
		return ErrInHandler
	}
	defer s.endTurns()
	err := s.engine.Leave(ctx)
	for _, t := range s.engine.Feeds {
		t.Halt()
	}
	err = errors.Join(err, s.engine.Tracer.Close())
	s.engine.Heard()
	return err
}

// leaveTime is how long up to leaveAtOnce places may take to be restored, and as many more each time. It is far longer
// than they take, also if other programs need the processors.
const (
	leaveTime   = 30 * time.Second
	leaveAtOnce = 1 << 16
)

// LeaveTime is a limit for Close: how long probes with such stats may take to be removed.
func LeaveTime(stats []Stats) time.Duration {
	n := 0
	for i := range stats {
		n += stats[i].Places
	}
	return leaveTime * time.Duration(1+n/leaveAtOnce)
}

// Pauses returns how long the session has stopped all threads of its processes: the longest
// time, and the sum. Hits of breakpoints, which stop one thread, are not included. Any
// goroutine may call it, also after Close.
func (s *Session) Pauses() (longest, sum time.Duration) { return s.engine.Tracer.Pauses() }
