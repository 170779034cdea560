package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// TestRecursionOfMany: where many functions' returns are probed and no number is given, no call of a function is
// missed that calls itself thousands of times and leaves by jumps to others.
func TestRecursionOfMany(t *testing.T) {
	const depth = 20000
	prog := fixture.Build(t, "probe_recursive.c", "-O2")
	want := plain(t, prog, fmt.Sprint(depth))
	for _, o := range []Options{{CountOnly: true}, {}} {
		sub := startSubject(t, prog, fmt.Sprint(depth))
		l, _ := engage(t, sub.pid(), o, "r:down down", "r:leaves probe_recursive:leaf*")
		if jumps, why := optimizedOf(l, "down"); jumps != 1 {
			t.Errorf("%+v: no jump: %s", o, why)
		}
		if got := sub.work(); got != want {
			t.Errorf("%+v: probed, the program printed %q, otherwise %q", o, got, want)
		}
		l.finish(sub.pid())
		sub.end()
		if st := l.stat("down"); st.Hits != depth+1 || st.Missed != 0 {
			t.Errorf("%+v: %d hits and %d missed, want %d and 0", o, st.Hits, st.Missed, depth+1)
		}
		if st := l.stat("leaves"); st.Hits != depth || st.Missed != 0 {
			t.Errorf("%+v: leaves: %d hits and %d missed, want %d and 0", o, st.Hits, st.Missed, depth)
		}
	}
}
