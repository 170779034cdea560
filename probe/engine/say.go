package engine

import (
	"context"
	"fmt"
	"log/slog"
)

// What is said goes out by probe/sayer, and holds nobody up.

// Logf says what is done.
func (s *Engine) Logf(format string, args ...any) { s.speak(slog.LevelInfo, format, args) }

// Warnf says what the user should know.
func (s *Engine) Warnf(format string, args ...any) { s.speak(slog.LevelWarn, format, args) }

func (s *Engine) speak(level slog.Level, format string, args []any) {
	log := s.Opts.Log
	if log == nil || !log.Enabled(context.Background(), level) {
		return
	}
	text := fmt.Sprintf(format, args...) // now: the arguments may change
	s.Sayer.Say(func() { log.Log(context.Background(), level, text) })
}

// Heard waits until all is said, or sayer.Patience has passed, where that keeps nobody but
// the caller.
func (s *Engine) Heard() {
	if s.Tracer.Here() {
		return
	}
	s.Sayer.Flush()
	if n := s.Sayer.TakeDropped(); n > 0 {
		s.Warnf("%d messages were dropped", n)
		s.Sayer.Flush()
	}
}
