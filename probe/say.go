package probe

import (
	"context"
	"fmt"
	"log/slog"
)

// What is said goes out by probe/sayer, and holds nobody up.

func (s *engine) logf(format string, args ...any) { s.speak(slog.LevelInfo, format, args) }

func (s *engine) warnf(format string, args ...any) { s.speak(slog.LevelWarn, format, args) }

func (s *engine) speak(level slog.Level, format string, args []any) {
	log := s.opts.Log
	if log == nil || !log.Enabled(context.Background(), level) {
		return
	}
	text := fmt.Sprintf(format, args...) // now: the arguments may change
	s.sayer.Say(func() { log.Log(context.Background(), level, text) })
}

// heard waits until all is said, or sayer.Patience has passed, where that keeps nobody but
// the caller.
func (s *engine) heard() {
	if s.tracer.Here() {
		return
	}
	s.sayer.Flush()
	if n := s.sayer.TakeDropped(); n > 0 {
		s.warnf("%d messages were dropped", n)
		s.sayer.Flush()
	}
}
