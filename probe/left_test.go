package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// TestCommonLeft: calls that threads leave by longjmp from ever other places of their stacks don't fill the common table:
// none is missed.
func TestCommonLeft(t *testing.T) {
	prog := fixture.Build(t, "probe_left.cc", "-O2", "-pthread")
	const rounds, threads = 10000, 8
	args := []string{fmt.Sprint(rounds), fmt.Sprint(threads)}
	want := plain(t, prog, args...)
	sub := startSubject(t, prog, args...)
	defs := []string{"r:fill fill_* v=$retval"}
	names := map[string]uint64{"leaf": rounds / 2, "inner": rounds / 2, "middle": rounds / 2, "beyond": rounds / 2, "outer": rounds / 2, "again": rounds}
	for name := range names {
		defs = append(defs, "r:"+name+" "+name+" v=$retval")
	}
	l := engageInto(t, sub.pid(), Options{}, nil, defs...)
	if got := sub.work(); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	for name, n := range names {
		if st := l.stat(name); st.Hits != n*threads || st.Missed != 0 {
			t.Errorf("%s: %d hits, %d missed, want %d", name, st.Hits, st.Missed, n*threads)
		}
	}
}
