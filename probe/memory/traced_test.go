package memory

import (
	"strings"
	"testing"
	"unicode/utf8"

	"kprobe/probe/ring"
)

// TestTraced reads what was stored, cut where a letter begins, and nothing from what no
// session writes.
func TestTraced(t *testing.T) {
	f := &File{Mem: make([]byte, ring.PageSize), Layout: &ring.Layout{}}
	load := func() (Traced, string) { return LoadTraced(f.Mem[HeaderTraced : HeaderTraced+TracedSize]) }
	if x, why := load(); x != TracedAlways || why != "" {
		t.Errorf("of a session that says nothing: %v, %q", x, why)
	}
	for _, c := range []struct {
		x   Traced
		why string
	}{{TracedFor, "there is a breakpoint"}, {TracedNot, ""}, {TracedFor, "x" + strings.Repeat("\u00e4", TracedSize)}, {TracedAlways, ""}} {
		StoreTraced(f, c.x, c.why)
		x, why := load()
		if x != c.x || !strings.HasPrefix(c.why, why) || !utf8.ValidString(why) || len(why) < min(len(c.why), TracedSize-8) {
			t.Errorf("%v, %q was stored, and is read as %v, %q", c.x, c.why, x, why)
		}
	}
	for _, bad := range [][]byte{nil, {1}, {9, 0, 0, 0}, {2, 255, 255, 255, 'x'}} {
		if x, why := LoadTraced(bad); x == TracedNot || len(why) > 1 {
			t.Errorf("% x is read as %v, %q", bad, x, why)
		}
	}
}
