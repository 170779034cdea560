package cli

import (
	"context"
	"log/slog"
)

// engineLog prints what a session says: warnings always, all else where -v asks for it.
type engineLog struct {
	m       *messages
	verbose bool
}

// Enabled implements slog.Handler.
func (l engineLog) Enabled(_ context.Context, level slog.Level) bool {
	return l.verbose || level >= slog.LevelWarn
}

// Handle implements slog.Handler.
func (l engineLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		l.m.warn("%s", r.Message)
	} else {
		l.m.say("%s", r.Message)
	}
	return nil
}

// WithAttrs implements slog.Handler: sessions give none.
func (l engineLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler: sessions give none.
func (l engineLog) WithGroup(string) slog.Handler { return l }
