package probe

import (
	"errors"
	"testing"

	"kprobe/internal/fixture"
)

// A link switches, counts and takes out what its Add has put in, and nothing else, and has
// nothing more to take out afterwards.
func TestLink(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "1")
	l, _ := engage(t, sub.pid(), Options{}, "p:a hit")
	link, err := l.s.Add(t.Context(), parseDefs(t, "p:b hit", "p:c mark k=$arg1", "p:b down"))
	if err != nil {
		t.Fatal(err)
	}
	if got := names(link.Events()); len(got) != 2 || got[0] != "kprobes/b" || got[1] != "kprobes/c" {
		t.Fatalf("the link is of %v", got)
	}
	sub.says("go 10")
	if err := link.Disable(); err != nil {
		t.Fatal(err)
	}
	sub.says("go 10")
	if err := link.Enable(); err != nil {
		t.Fatal(err)
	}
	sub.says("go 10")
	if !waitUntil(func() bool { st := link.Stats(); return st[0].Hits == 20 && st[0].Places == 2 && st[1].Hits == 0 }) {
		t.Errorf("counted %+v", link.Stats())
	}
	if st := l.stat("a"); st.Hits != 30 {
		t.Errorf("%d hits of a, which is not the link's, want 30", st.Hits)
	}
	if err := l.s.Remove(t.Context(), link.Events()[1]); err != nil {
		t.Fatal(err)
	}
	if err := link.Disable(); !errors.Is(err, ErrNoEvent) {
		t.Errorf("switched though one was taken out: %v", err)
	}
	for range 2 {
		if err := link.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := names(l.s.Events()); len(got) != 1 || got[0] != "kprobes/a" {
		t.Errorf("%v are left, want a", got)
	}
	sub.says("go 10")
	if st := link.Stats(); len(st) != 2 || st[0].Hits != 20 {
		t.Errorf("counted %+v when it was closed", st)
	}
	if st := l.stat("a"); st.Hits != 40 {
		t.Errorf("%d hits of a, want 40", st.Hits)
	}
	l.finish(sub.pid())
	sub.end()
}
