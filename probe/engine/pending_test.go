package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/symbols"
)

// TestStillWaits: of why a waiting definition isn't armed the user is told what concerns the definition, once.
func TestStillWaits(t *testing.T) {
	def, err := fetch.Parse("p:e lib.so:f")
	if err != nil {
		t.Fatal(err)
	}
	odd := errors.New("an odd library")
	for _, c := range []struct {
		err  error
		want int // warnings
	}{
		{odd, 1}, {symbols.ErrNotMapped, 0}, {&symbols.UnboundIFuncError{}, 0},
		{fmt.Errorf("arm: %w", context.DeadlineExceeded), 0}, {context.Canceled, 0},
	} {
		var out bytes.Buffer
		tg := &Target{Engine: &Engine{Opts: Options{Log: slog.New(slog.NewTextHandler(&out, nil))}}}
		p := &pendingDef{Definition: &Definition{Def: def}}
		for range 2 {
			tg.stillWaits(p, c.err)
		}
		tg.Engine.Sayer.Flush()
		if n := strings.Count(out.String(), "level=WARN"); n != c.want || p.err != c.err {
			t.Errorf("%v: %d warnings, want %d; it keeps %v\n%s", c.err, n, c.want, p.err, out.String())
		}
	}
}
