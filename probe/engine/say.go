package engine

import (
	"context"
	"fmt"
	"log/slog"
)

// Messages go through probe/sayer, so that a slow log delays nobody.

// Logf logs what the engine does (slog.LevelInfo).
func (s *Engine) Logf(format string, args ...any) { s.speak(slog.LevelInfo, format, args) }

// Warnf logs what the user should know (slog.LevelWarn).
func (s *Engine) Warnf(format string, args ...any) { s.speak(slog.LevelWarn, format, args) }

func (s *Engine) speak(level slog.Level, format string, args []any) {
	log := s.Opts.Log
	if log == nil || !log.Enabled(context.Background(), level) {
		return
	}
	text := fmt.Sprintf(format, args...) // formatted now, because the arguments may change
	s.Sayer.Say(func() { log.Log(context.Background(), level, text) })
}

// Heard waits until all messages are logged, or sayer.Patience has passed. On the tracer's thread it
// returns at once, because others would have to wait, too.
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
