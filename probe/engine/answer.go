package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How stops are answered while probes are planned
//
// If thousands of functions match a pattern, it takes seconds to find the places, prove them and
// plan their jumps. The target runs meanwhile. A stop for a signal, a thread's birth or a breakpoint
// must not wait until the plan is complete. So:
//
//   - Questions that files can answer are answered before a thread is seized, or on another
//     goroutine (prepare.go).
//   - The planning code calls answer after each place and each function, and away for long
//     indivisible work.
//   - Stops whose handling would itself plan and write are put off (Early): for a program that was
//     executed, a child that is followed, or the loader's report of a library. A few others change
//     the text during a plan nevertheless: a breakpoint at a return address, or a jump that gives
//     way to a fault. Each increments addressSpace.text, and then the plan is made again.
//   - The text is written in one stop, in which no stop is answered.
//
// The same holds between Attach and Run, and from Run's end to Close.

// answers is the state of answering stops during a plan.
type answers struct {
	Last  time.Time       // when stops were last answered
	off   int             // if not 0, no stops are answered: the nesting of those who forbid it
	Haste context.Context // the context of the current change; nil: none
	Asked func()          // for tests: called by each Answer; nil: not
}

// answerEvery is the longest time that a stop waits during planning, and also how long stops are
// then answered. So threads that hit breakpoints without end get half of the time.
const answerEvery = 500 * time.Microsecond

// Answer answers waiting stops. It returns an error if the current change should be given up: that
// of its context.
func (s *Engine) Answer() error {
	if s.Answers.Asked != nil {
		s.Answers.Asked()
	}
	now := time.Now()
	if now.Sub(s.Answers.Last) < answerEvery {
		return nil
	}
	s.Answers.Last = now
	err := s.aside(func() error { return s.Tracer.Answer(answerEvery) })
	return errors.Join(err, s.hurried())
}

// answer is Engine.Answer during a change of the target. The error is tracee.ErrGone if the last
// process of the address space has ended meanwhile.
func (tg *Target) answer() error {
	if err := tg.Engine.Answer(); err != nil {
		return err
	}
	return tg.goneError()
}

// goneError returns tracee.ErrGone if the address space is gone, else nil.
func (tg *Target) goneError() error {
	if !tg.over {
		return nil
	}
	return tg.endedError()
}

// endedError says that the target's process has ended.
func (tg *Target) endedError() error {
	return fmt.Errorf("process %d: %w", tg.Proc.PID(), tracee.ErrGone)
}

// hurried is the error of the current change's context.
func (s *Engine) hurried() error {
	if s.Answers.Haste == nil {
		return nil
	}
	return s.Answers.Haste.Err()
}

// aside runs f, which answers stops, unless that is forbidden. The code that is interrupted so may
// itself handle a stop, so its hitState is kept.
func (s *Engine) aside(f func() error) error {
	if s.Answers.off > 0 {
		return nil
	}
	was, busy := s.hitState, s.busy.Load()
	s.rec, s.done = nil, nil
	err := f()
	s.hitState = was
	s.busy.Store(busy)
	s.Answers.Last = time.Now()
	return err
}

// inHaste runs f as a change with the context ctx: answer returns the error of ctx.
func (s *Engine) inHaste(ctx context.Context, f func() error) error {
	was := s.Answers.Haste
	s.Answers.Haste = ctx
	defer func() { s.Answers.Haste = was }()
	return f()
}

// away runs fn on another goroutine and answers stops meanwhile. fn must not touch the session's
// state. If the current change should be given up, away returns without waiting for fn.
func away[T any](s *Engine, fn func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	if s.Answers.off > 0 {
		return fn()
	}
	got := make(chan result, 1)
	over := make(chan struct{})
	haste := s.Answers.Haste
	err := s.aside(func() error {
		return s.Tracer.Away(func() {
			go func() {
				v, err := fn()
				got <- result{v, err}
				close(over)
			}()
			if haste == nil {
				<-over
				return
			}
			select {
			case <-over:
			case <-haste.Done():
			}
		})
	})
	if herr := s.hurried(); err != nil || herr != nil {
		var none T
		return none, errors.Join(err, herr)
	}
	r := <-got
	return r.v, r.err
}

// Early implements tracee.EarlyHandler.
func (h Handler) Early(t *tracee.Thread) bool {
	s := h.engine
	switch t.Stop() {
	case tracee.StopExec:
		return false
	case tracee.StopFork:
		return !s.Opts.Follows() || s.Stopping
	case tracee.StopTrap:
		tg := s.targetOf(t)
		regs, err := t.Regs()
		if tg == nil || err != nil {
			return true
		}
		st := tg.Sites[symbols.Addr(regs.Rip-1)]
		hooked := st != nil && st.Armed && len(st.hooks) > 0
		return !hooked && (s.Running || !s.Owner.HasHandlers())
	}
	return true
}
