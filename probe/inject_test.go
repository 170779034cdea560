package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

func startInjected(t *testing.T) *subject {
	t.Helper()
	return startSubject(t, fixture.Build(t, "probe_inject.c", "-O2", "-pthread"), "3")
}

// changed asks how many calls failed, all with the errno that was injected.
func (s *subject) changed() (n uint64) {
	s.t.Helper()
	var failed uint64
	line := s.work()
	if _, err := fmt.Sscanf(line, "done wrong %d failed %d", &n, &failed); err != nil || n != failed {
		s.t.Errorf("the program says %q, %v", line, err)
	}
	return n
}

func noSpace(every, limit uint64) *Injection {
	result := ^uint64(0)
	return &Injection{Result: &result, Errno: 28, Every: every, Limit: limit}
}

// TestHazardP49: calls that detours end are those that are counted, however often
// sessions leave while threads are in the midst of ending one, and signals interrupt
// them.
func TestHazardP49(t *testing.T) {
	for _, def := range []string{"p work", "p work n=$arg1:u64 if n & 4"} {
		sub := startInjected(t)
		want := uint64(0)
		for range 3 {
			l := attach(t, sub.pid(), Options{Inject: noSpace(997, 0)}, def)
			some := func() bool { st := l.s.Stats()[0]; return st.Recorded+st.Lost > 100 }
			if !waitUntil(some) {
				t.Fatalf("%+v", l.s.Stats())
			}
			sum := l.finish(sub.pid())
			st := sum.Stats[0]
			want += st.Recorded + st.Lost
			if st.Trapped == st.Places || st.Filtered < 996*(st.Recorded+st.Lost) {
				t.Errorf("%s: %+v", def, st)
			}
		}
		if got := sub.changed(); got != want {
			t.Errorf("%s: %d calls were changed, %d are counted", def, got, want)
		}
		sub.end()
	}
}

// TestInjectLimit: no more calls are changed than are to be, by jumps and by breakpoints.
func TestInjectLimit(t *testing.T) {
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startInjected(t)
		o.Inject = noSpace(3, 200)
		l := attach(t, sub.pid(), o, "p work")
		if !waitUntil(func() bool { return l.s.Stats()[0].Filtered > 2000 }) {
			t.Fatalf("%+v", l.s.Stats())
		}
		st := l.finish(sub.pid()).Stats[0]
		if got := sub.changed(); got != 200 || st.Recorded+st.Lost != 200 || (st.Trapped == st.Places) != o.NoOptimize {
			t.Errorf("%d calls were changed, want 200; %+v", got, st)
		}
		sub.end()
	}
}

// TestInjectDetached: calls stay changed when kprobe has left, no more than are to be.
func TestInjectDetached(t *testing.T) {
	sub := startInjected(t)
	leaveIn(t, sub.pid(), Options{Inject: noSpace(3, 5000), Detach: true}, "p work")
	l, err := OpenLive(sub.pid())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := func() bool {
		if err := l.Refresh(); err != nil {
			t.Fatal(err)
		}
		return l.Stats()[0].Filtered > 50000
	}
	if !waitUntil(done) {
		t.Fatal("calls aren't changed")
	}
	if got := sub.changed(); got != 5000 {
		t.Errorf("%d calls were changed, want 5000", got)
	}
	sub.end()
}
