// Package sayer prints messages on a goroutine of its own. The terminal may not take them for a
// while (^S, a pipe that nobody reads), and most messages come from the tracer's thread, on
// whose answers the program waits.
package sayer

import (
	"sync"
	"time"
)

// Most is how many lines wait to be said; further ones are dropped.
const Most = 1000

// Sayer says lines in order. The zero value is ready. It is safe for concurrent use.
type Sayer struct {
	mu      sync.Mutex
	lines   []func()
	dropped int
	done    chan struct{} // closed when all is said; nil: nothing is being said
}

// Say has a line said soon.
func (s *Sayer) Say(line func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) >= Most {
		s.dropped++
		return
	}
	s.lines = append(s.lines, line)
	if s.done == nil {
		s.done = make(chan struct{})
		go s.run()
	}
}

func (s *Sayer) run() {
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

// Patience is how long it may take until all is said before nobody waits for it.
const Patience = time.Second

// Flush waits until all is said, or Patience has passed.
func (s *Sayer) Flush() {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(Patience):
	}
}

// TakeDropped gives how many lines were dropped, once.
func (s *Sayer) TakeDropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.dropped
	s.dropped = 0
	return n
}
