package probe

import (
	"testing"

	"kprobe/internal/fixture"
)

// TestReturnUnseen: a call that was entered while its probe was disabled is not taken,
// when it returns, for one that was left by longjmp before.
func TestReturnUnseen(t *testing.T) {
	prog := fixture.Build(t, "left_unseen.c", "-O2")
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startSubject(t, prog)
		l := attach(t, sub.pid(), o, "r:f f v=$retval w=$arg1")
		only := func(event string) func(string, string) bool {
			return func(_, e string) bool { return e == event }
		}
		set := openedLive(t, sub.pid())
		sub.line()
		sub.expect("jumped")
		sub.expect("left")
		if _, err := set.Enable(only("f"), false); err != nil {
			t.Fatal(err)
		}
		sub.line()
		sub.expect("within")
		if _, err := set.Enable(only("f"), true); err != nil {
			t.Fatal(err)
		}
		sub.line()
		sub.expect("done")
		if st := l.stat("f"); st.Hits != 0 || st.Missed != 0 {
			t.Errorf("%+v: a call that was entered unseen: %d hits, %d missed", o, st.Hits, st.Missed)
		}
		sub.line()
		sub.expect("again")
		if st := l.stat("f"); st.Hits != 1 || st.Missed != 0 {
			t.Errorf("%+v: a call that was seen: %d hits, %d missed", o, st.Hits, st.Missed)
		}
		l.finish(sub.pid())
		sub.end()
	}
}
