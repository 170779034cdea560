package probe

import (
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestExitUnwinder: in a program with exceptions return addresses stay, and
// returns are seen at the exits. What an exception leaves is no return.
func TestExitUnwinder(t *testing.T) {
	prog := fixture.Build(t, "probe_throw.cc", "-O2")
	want := plain(t, prog, "300")
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startSubject(t, prog, "300")
		l := attach(t, sub.pid(), o, "r64:out thrower v=$retval n=$arg1", "p:in thrower n=$arg1")
		if n, why := optimizedOf(l, "out"); (n == 1) == o.NoOptimize {
			t.Errorf("%d places by a jump, the others because %q", n, why)
		}
		if got := sub.work(); got != want {
			t.Errorf("probed, the program printed %q, otherwise %q", got, want)
		}
		l.finish(sub.pid())
		sub.end()
		if st := l.stat("out"); st.Hits != 200 {
			t.Errorf("%d returns, want 200", st.Hits)
		}
	}
}

// TestExitJumps says which functions of a C++ program are probed by jumps.
func TestExitJumps(t *testing.T) {
	prog := fixture.Build(t, "probe_unwind.cc", "-O2")
	sub := startSubject(t, prog, "throw", "30")
	jumps := []string{"thrower", "catcher", "frames", "jumps", "sets", "spawns", "waits", "leaves", "body", "yield", "resume", "contexts", "recurse"}
	var defs []string
	for _, f := range jumps {
		defs = append(defs, "r:"+f+" "+f+" v=$retval")
	}
	l := attach(t, sub.pid(), Options{}, defs...)
	for _, f := range jumps {
		if n, why := optimizedOf(l, f); n != 1 {
			t.Errorf("%s is no jump: %s", f, why)
		}
	}
	sub.work()
	for _, line := range l.sink.all() {
		if strings.HasPrefix(line, "catcher") && !strings.Contains(line, "(one") && !strings.Contains(line, "(main") {
			t.Errorf("%s: not returned to its caller", line)
		}
	}
	l.finish(sub.pid())
	sub.end()
}
