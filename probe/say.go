package probe

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// What is to be said goes to the terminal on a goroutine of its own: the terminal
// may not take it for a while (^S, a pipe that nobody reads), and most is said by
// the tracer's thread, on whose answers the program waits.

// maxUnsaid is how many lines wait to be said at most; further ones are dropped.
const maxUnsaid = 1000

// sayer says lines in order. The zero value is ready. It is safe for concurrent use.
type sayer struct {
	mu      sync.Mutex
	lines   []func()
	dropped int
	done    chan struct{} // closed when all is said; nil: nothing is being said
}

// say has a line said soon.
func (s *sayer) say(line func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) >= maxUnsaid {
		s.dropped++
		return
	}
	s.lines = append(s.lines, line)
	if s.done == nil {
		s.done = make(chan struct{})
		go s.run()
	}
}

func (s *sayer) run() {
	for {
		s.mu.Lock()
		if len(s.lines) == 0 {
			close(s.done)
			s.done = nil
			s.mu.Unlock()
			return
		}
		line := s.lines[0]
		s.lines = s.lines[1:]
		s.mu.Unlock()
		line()
	}
}

// sayTime is how long it may take until all is said before nobody waits for it.
const sayTime = time.Second

// flush waits until all is said, or sayTime has passed.
func (s *sayer) flush() {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(sayTime):
	}
}

// takeDropped gives how many lines were dropped, once.
func (s *sayer) takeDropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.dropped
	s.dropped = 0
	return n
}

func (s *Session) logf(format string, args ...any) { s.speak(slog.LevelInfo, format, args) }

func (s *Session) warnf(format string, args ...any) { s.speak(slog.LevelWarn, format, args) }

func (s *Session) speak(level slog.Level, format string, args []any) {
	log := s.opts.Log
	if log == nil || !log.Enabled(context.Background(), level) {
		return
	}
	text := fmt.Sprintf(format, args...) // now: the arguments may change
	s.sayer.say(func() { log.Log(context.Background(), level, text) })
}

// heard waits until all is said, or sayTime has passed, where that keeps nobody but
// the caller.
func (s *Session) heard() {
	if s.tracer.Here() {
		return
	}
	s.sayer.flush()
	if n := s.sayer.takeDropped(); n > 0 {
		s.warnf("%d messages were dropped", n)
		s.sayer.flush()
	}
}
