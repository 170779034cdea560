package probe

import (
	"context"
	"log/slog"
	"testing"
)

// logTo is a log that has a function get the messages of a level and above, and drops others.
func logTo(level slog.Level, get func(text string)) *slog.Logger {
	return slog.New(logOf{level, get})
}

// testLog has a test say what a session says.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(logOf{slog.LevelInfo, func(text string) { t.Log(text) }})
}

type logOf struct {
	level slog.Level
	get   func(text string)
}

func (l logOf) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }

func (l logOf) Handle(_ context.Context, r slog.Record) error {
	l.get(r.Message)
	return nil
}

func (l logOf) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l logOf) WithGroup(string) slog.Handler      { return l }
