package cli

import (
	"strings"
	"testing"

	"kprobe/probe"
	"kprobe/symbols"
)

// TestGraphNow: calls that another kprobe has seen begin have their times, and --depth
// keeps the outermost.
func TestGraphNow(t *testing.T) {
	l := &fakeLive{open: []probe.OpenCall{{Entry: 600_000_000}}}
	r := kprobe(t, &fake{lives: map[int]*fakeLive{1: l}}, "", "graph", "--now", "--depth", "1", "-p", "1")
	for _, want := range []string{"# prog-1: 1 thread, 1 sleeping\n", "| @  400000 us  |  main() {\n", "read(fd=0);\n"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
	if r.status != 0 || r.err != "" || strings.Contains(r.out, "inner") || l.closed != 1 {
		t.Errorf("%+v, closed %d times", r, l.closed)
	}
	r = kprobe(t, &fake{begin: symbols.ErrGone}, "", "graph", "--now", "-p", "1")
	if r.status != 1 || !strings.Contains(r.err, "no such process") {
		t.Errorf("%+v", r)
	}
}
