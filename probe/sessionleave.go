package probe

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Detach leaves the processes with the probes that need no tracer, whose hits go into the
// rings from then on, the newest over the oldest; the session is closed. Probes that need
// one are taken out, and given with the reason. With ErrNothingLeft the session goes on
// with what is left of it. It is for sessions with Options.Detach.
//
// Other errors are of what was not done: where it can't be known whether a process was
// left, its probes are found there, or were taken out (Recover).
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
	return out, err
}

// Close takes every probe out of every process, in order, and leaves them
// running; see detach. A command that was started runs on, too. It may be
// called more than once; a closed session can't be used again. In a handler it does
// nothing and returns ErrInHandler.
func (s *Session) Close(ctx context.Context) error {
	if s.inHandler() {
		return ErrInHandler
	}
	err := s.engine.Leave(ctx)
	for _, t := range s.engine.Feeds {
		t.Halt()
	}
	err = errors.Join(err, s.engine.Tracer.Close())
	s.engine.Heard()
	return err
}

// Pauses tells for how long the session's processes have stood still for it: at
// the longest, and all times together. Breakpoints' hits, which stop one thread,
// are not in it. It may be called by any goroutine, after Close too.
func (s *Session) Pauses() (longest, sum time.Duration) { return s.engine.Tracer.Pauses() }
