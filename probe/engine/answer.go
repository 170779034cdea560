package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// What is answered while probes are planned
//
// For a pattern that thousands of functions match it takes a moment to find the places, prove
// them and plan their jumps. The target runs meanwhile, and a stop for a signal, a thread's
// birth or a breakpoint must not wait for the end. So
//
//   - what files tell is looked up before a thread is seized, or on another goroutine
//     (prepare.go);
//   - the planning code calls answer after each place and each function, and away for long
//     indivisible work;
//   - answers that would plan and write themselves are put off (Early): a program that was
//     executed, a child that is followed, the loader's report of a library. A few others change
//     the text in the middle of a plan nevertheless (a breakpoint where a call returns to, a
//     jump that gives way to a fault). target.text shows that, and the plan is made again;
//   - the text is written in one stop, in which nothing is looked up any more.
//
// The same holds between Attach and Run, and from Run's end to Close.

// answers is the state of what is answered in between.
type answers struct {
	Last  time.Time       // when it was looked at last
	off   int             // depth of those who can't have it
	Haste context.Context // of who is planning: nil is none
	Asked func()          // for tests: answer was called; nil is nothing
}

// answerEvery is how long a stop may wait while probes are planned, and how long is
// answered at a time: threads that hit breakpoints without end get half of the time.
const answerEvery = 500 * time.Microsecond

// Answer answers stops that wait, and says whether who is planning should give up:
// the error of its context.
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

// answer is Engine.answer for who plans probes of the target: ErrGone where its
// last process has ended meanwhile, and all that was known of it is forgotten.
func (tg *Target) answer() error {
	if err := tg.Engine.Answer(); err != nil {
		return err
	}
	return tg.goneError()
}

// goneError is ErrGone if the address space is gone.
func (tg *Target) goneError() error {
	if !tg.over {
		return nil
	}
	return fmt.Errorf("process %d: %w", tg.Proc.PID(), tracee.ErrGone)
}

// hurried is the error of the context of who is planning.
func (s *Engine) hurried() error {
	if s.Answers.Haste == nil {
		return nil
	}
	return s.Answers.Haste.Err()
}

// aside runs something that answers stops, in the midst of what may be an answer
// itself.
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

// inHaste runs f, of which answer says when ctx is done.
func (s *Engine) inHaste(ctx context.Context, f func() error) error {
	was := s.Answers.Haste
	s.Answers.Haste = ctx
	defer func() { s.Answers.Haste = was }()
	return f()
}

// away runs fn, which touches no state of the session, and answers stops
// meanwhile. If who is planning should give up it doesn't wait for fn.
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
