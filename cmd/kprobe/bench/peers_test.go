package bench

import (
	"os/exec"
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
		{100, 0, 0, true},        // it measured something else
		{22012, 22013, 0, false}, // a step was interrupted
		{100, 103, 0, true},      // it counted something else
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

// TestRemote has a shell do what it is told through the descriptors.
func TestRemote(t *testing.T) {
	for _, c := range []struct {
		script string
		fails  bool
	}{
		{`read -r what <&3; [ "$what" = enable ] && echo ack >&4`, false},
		{`read -r what <&3; echo no >&4`, true},
		{`exit 0`, true},
	} {
		cmd := exec.Command("sh", "-c", c.script)
		r, err := newRemote(cmd)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := r.enable(); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.script, err)
		}
		r.close()
		_ = cmd.Wait()
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
		case r.Kind == "peer" && r.Lost > 0.9:
			t.Errorf("%s: %.2f %% of the hits are lost", r.What, 100*r.Lost)
		}
	}
}
