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
	defer s.heard()
	err = s.tracer.Do(func() error {
		if s.closed {
			return ErrClosed
		}
		for _, tg := range s.targets {
			if !tg.isMain() {
				continue
			}
			if err := tg.mayLeaveTriggers(tg.leftOut()); err != nil {
				return err
			}
			some, err := tg.leaveOut(ctx)
			out = append(out, some...)
			if err != nil {
				return fmt.Errorf("process %d: %w", tg.proc.PID(), err)
			}
		}
		for _, tg := range s.targets {
			if tg.isMain() && len(tg.placed) == 0 {
				return fmt.Errorf("process %d: %w", tg.proc.PID(), ErrNothingLeft)
			}
		}
		return s.leaveAlone(ctx)
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
	err := s.leave(ctx)
	for _, t := range s.feeds {
		if t.done != nil {
			t.cancel()
			<-t.done
		}
	}
	err = errors.Join(err, s.tracer.Close())
	s.heard()
	return err
}

// Pauses tells for how long the session's processes have stood still for it: at
// the longest, and all times together. Breakpoints' hits, which stop one thread,
// are not in it. It may be called by any goroutine, after Close too.
func (s *Session) Pauses() (longest, sum time.Duration) { return s.tracer.Pauses() }
