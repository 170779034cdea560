package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestPrograms: a real program works with probes of all its functions, and what is said of
// it is of that.
func TestPrograms(t *testing.T) {
	fixture.NeedTool(t, "sqlite3")
	list := loads()
	x := &list[slices.IndexFunc(list, func(x load) bool { return x.name == "sqlite3" })]
	m := &meter{o: Options{Each: time.Millisecond}, report: &Report{}}
	if err := m.program(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	if len(m.report.Programs) != 2 {
		t.Fatalf("%d rows", len(m.report.Programs))
	}
	for i, p := range m.report.Programs {
		// What is busy beside it may take any time.
		if p.Probes != allOf[i].name || p.Places < 100 || p.Trapped*2 > p.Places || p.Hits < 100 || p.NS <= 0 || p.CPU <= 0 || p.Throughput <= 0 || p.Armed <= 0 || p.Longest <= 0 || p.Memory <= 0 {
			t.Errorf("%+v", p)
		}
	}
}

// TestProgramEnds: a program that ends by itself is an error that has its last words.
func TestProgramEnds(t *testing.T) {
	_, err := telling("sh", "\n", "-c", "echo no such luck >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("a program that ends: %v", err)
	}
}

// TestProgramsMissing: what is not installed is said as such, and is no error.
func TestProgramsMissing(t *testing.T) {
	if _, err := installed("no-such-program"); !errors.Is(err, errNotInstalled) {
		t.Errorf("a program that isn't there: %v", err)
	}
	m := &meter{report: &Report{}}
	missing := load{name: "missing", start: func(context.Context, string) (*running, error) { return nil, errNotInstalled }}
	if err := m.program(t.Context(), &missing); !errors.Is(err, errNotInstalled) {
		t.Errorf("a load of it: %v", err)
	}
}
