package probe

import (
	"testing"

	"kprobe/internal/fixture"
)

// TestRemovedBehindEndbr removes probes whose jumps are behind the endbr64 that their
// functions begin with: no byte of them stays.
func TestRemovedBehindEndbr(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2", "-fcf-protection=full"), "2")
	l := attach(t, sub.pid(), Options{})
	link, err := l.s.Add(t.Context(), parseDefs(t, "p:in work", "r:out recurse", "p:text text a=$arg1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"in", "out", "text"} {
		if n, why := optimizedOf(l, name); n != 1 {
			t.Errorf("%s is no jump: %s", name, why)
		}
	}
	if err := link.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	givesBack(t, l)
	l.finish(sub.pid())
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no round wrong", got)
	}
	sub.end()
}
