package bench

import (
	"strings"
	"testing"
)

func TestLinesOf(t *testing.T) {
	text := "Attaching 1 probe...\n71 1f 40000000\n71 1e 40000000\n\n71 1e\n71 -1 4\n71 1g 40000000\nadd bad cafe\n"
	if got := linesOf(text, 3); got != 3 {
		t.Errorf("%d lines of three numbers, want 3", got)
	}
	if got := linesOf(text, 2); got != 1 {
		t.Errorf("%d lines of two numbers, want 1", got)
	}
}

func TestLostOf(t *testing.T) {
	for _, c := range []struct {
		made, recorded uint64
		want           float64
		fails          bool
	}{
		{100, 100, 0, false},
		{100, 75, 0.25, false},
		{100, 0, 0, true},   // it measured something else
		{100, 101, 0, true}, // it counted something else
	} {
		got, err := lostOf(c.made, c.recorded)
		if got != c.want || err != nil != c.fails {
			t.Errorf("%d of %d: %g, %v", c.recorded, c.made, got, err)
		}
	}
}

func TestProfiled(t *testing.T) {
	text := "  /usr/bin/other                 hit                            7\n" +
		"  /tmp/kprobe-bench-1/kprobe-bench hit 1234\n  /tmp/kprobe-bench-1/kprobe-bench miss 5\n"
	if n, err := profiled(text, "/tmp/kprobe-bench-1/kprobe-bench"); n != 1234 || err != nil {
		t.Errorf("%d hits, %v", n, err)
	}
	if n, err := profiled(text, "/tmp/kprobe-bench-2/kprobe-bench"); err == nil {
		t.Errorf("%d hits of a file without an event", n)
	}
}

// checkPeers wants every other tool that was measured to have recorded the
// calls, which Run fails without, and those that never lose a hit all of them.
func checkPeers(t *testing.T, rows []Row) {
	exact := map[string]bool{"bpftrace, counted only": true, "gdb, dprintf of 2 arguments": true}
	for _, r := range rows {
		switch {
		case r.Kind == "uprobe", exact[r.What]:
			if r.Lost != 0 {
				t.Errorf("%s: %.2f %% of the hits are not in its count", r.What, 100*r.Lost)
			}
		case r.Kind == "peer" && r.Lost > 0.9 && !strings.HasPrefix(r.What, "perf "): // see TestRun
			t.Errorf("%s: %.2f %% of the hits are lost", r.What, 100*r.Lost)
		}
	}
}
