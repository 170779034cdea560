package probe

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

func openedLive(t *testing.T, pid int) *Live {
	t.Helper()
	l, err := OpenLive(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// hitsOf gives the hits of an event in a list of counters.
func hitsOf(t *testing.T, stats []Stats, event string) uint64 {
	t.Helper()
	for i := range stats {
		if stats[i].Event.Name == event {
			return stats[i].Hits
		}
	}
	t.Fatalf("no event %s", event)
	return 0
}

// refreshed looks until an event has the hits that it must have, which is to be
// seen within a tenth of a second.
func refreshed(t *testing.T, l *Live, event string, hits uint64) []Stats {
	t.Helper()
	for deadline := time.Now().Add(patient); ; time.Sleep(5 * time.Millisecond) {
		if err := l.Refresh(); err != nil {
			t.Fatal(err)
		}
		stats := l.Stats()
		got := hitsOf(t, stats, event)
		if got == hits {
			return stats
		}
		if got > hits || time.Now().After(deadline) {
			t.Fatalf("%s: %d hits are seen from beside, want %d", event, got, hits)
		}
	}
}

// TestLiveSeesWhatTheSessionCounts looks at a session from beside it.
func TestLiveSeesWhatTheSessionCounts(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	sub := startSubject(t, prog, "work", "1000")
	if _, err := OpenLive(sub.pid()); !errors.Is(err, ErrNotTraced) {
		t.Errorf("before there is a session: %v", err)
	}
	s := attach(t, sub.pid(), Options{}, "p:web/in work n=$arg1:u64", "r:out work v=$retval:u64", "p:odd work n=$arg1:u64 if n & 1", "p:idle libc:abort")
	l := openedLive(t, sub.pid())
	if l.PID != sub.pid() || l.Tracer != os.Getpid() {
		t.Errorf("process %d of tracer %d", l.PID, l.Tracer)
	}
	sub.work()
	for _, name := range []string{"in", "out", "odd"} {
		refreshed(t, l, name, 1000)
	}
	mine, theirs := l.Stats(), s.s.Stats()
	if len(mine) != 4 || len(theirs) != 4 {
		t.Fatalf("%d and %d events", len(mine), len(theirs))
	}
	for i := range theirs {
		name := theirs[i].Event.Name
		want := uint64(1000)
		if name == "idle" {
			want = 0
		}
		if got := hitsOf(t, mine, name); got != theirs[i].Hits || got != want {
			t.Errorf("%s: %d hits, the session says %d, want %d", name, got, theirs[i].Hits, want)
		}
	}
	for _, m := range mine {
		if m.Event.Name == "odd" && m.Filtered != 500 {
			t.Errorf("odd: %d filtered", m.Filtered)
		}
		if m.Event.Return != (m.Event.Name == "out") || m.Places != 1 || m.Disabled {
			t.Errorf("%+v of %+v", m, m.Event)
		}
	}
	space, err := l.Space()
	if err != nil {
		t.Fatal(err)
	}
	probes := l.Probes()
	if len(probes) != 4 {
		t.Fatalf("%d probes", len(probes))
	}
	for _, p := range probes {
		want := "work"
		if p.Event == "idle" {
			want = "abort"
		}
		if name, off, _, _, ok := space.Symbolize(p.Addr); !ok || name != want || off != 0 || p.Armed == 0 {
			t.Errorf("%s is at %s+%#x, armed at %d", p.Event, name, off, p.Armed)
		}
		if p.Tactic.Jump() != p.Optimized || !p.Optimized && p.Tactic != plan.Breakpoint {
			t.Errorf("%s is a %v, optimized %v", p.Event, p.Tactic, p.Optimized)
		}
	}
	s.finish(sub.pid())
	if err := l.Refresh(); !errors.Is(err, ErrNotTraced) {
		t.Errorf("after the session: %v", err)
	}
	if _, err := OpenLive(sub.pid()); !errors.Is(err, ErrNotTraced) {
		t.Errorf("after the session: %v", err)
	}
	sub.end()
}

func TestLiveDisables(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startSubject(t, prog, "work", "1000")
		s := attach(t, sub.pid(), o, "p:web/a work", "p:web/b work", "r:c work")
		l := openedLive(t, sub.pid())
		got, err := l.Enable(func(group, _ string) bool { return group == "web" }, false)
		if err != nil || !slices.Equal(got, []string{"web/a", "web/b"}) {
			t.Fatalf("disabled %v, %v", got, err)
		}
		if got, err := l.Enable(func(_, event string) bool { return event == "b" }, true); err != nil || len(got) != 1 {
			t.Fatalf("enabled %v, %v", got, err)
		}
		sub.work()
		refreshed(t, l, "b", 1000)
		stats := refreshed(t, l, "c", 1000)
		for event, want := range map[string]uint64{"a": 0, "b": 1000, "c": 1000} {
			if got := hitsOf(t, stats, event); got != want {
				t.Errorf("%+v: %s: %d hits, want %d", o, event, got, want)
			}
			if hits := hitsOf(t, s.s.Stats(), event); hits != want {
				t.Errorf("%+v: %s: the session counted %d hits, want %d", o, event, hits, want)
			}
		}
		for _, p := range l.Probes() {
			if p.Disabled != (p.Event == "a") {
				t.Errorf("%s: disabled is %v", p.Event, p.Disabled)
			}
		}
		s.finish(sub.pid())
		sub.end()
	}
}

func TestLivePIDs(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	sub := startSubject(t, prog, "work", "1")
	has := func() bool {
		pids, err := LivePIDs()
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(pids, sub.pid())
	}
	if has() {
		t.Error("it is listed before it is traced")
	}
	s := attach(t, sub.pid(), Options{}, "p work")
	if !has() {
		t.Error("it is not listed")
	}
	s.finish(sub.pid())
	if has() {
		t.Error("it is listed after the trace")
	}
	sub.work()
	sub.end()
}

func TestLiveOfProcessesThatAreGone(t *testing.T) {
	if _, err := OpenLive(1 << 29); !errors.Is(err, symbols.ErrGone) {
		t.Errorf("no such process: %v", err)
	}
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	sub := startSubject(t, prog, "work", "1")
	s := attach(t, sub.pid(), Options{}, "p work")
	l := openedLive(t, sub.pid())
	_ = sub.cmd.Process.Kill()
	<-s.done // and no Wait before, which would take the tracer's stops
	if err := l.Refresh(); !errors.Is(err, symbols.ErrGone) && !errors.Is(err, ErrNotTraced) {
		t.Errorf("after its end: %v", err)
	}
	if _, err := l.Enable(func(string, string) bool { return true }, false); err == nil {
		t.Error("something was disabled in a process that is gone")
	}
}

// stuckSink keeps who gives it a hit until it is let go.
type stuckSink struct {
	once      sync.Once
	held, let chan struct{}
	hits      atomic.Uint64
}

func (s *stuckSink) Hit(*Hit) error {
	s.once.Do(func() { close(s.held) })
	<-s.let
	s.hits.Add(1)
	return nil
}

// TestCountersBesideAStuckSink: the counters are those of the program, on both
// sides, however long the sink takes; nothing of it waits for the sink.
func TestCountersBesideAStuckSink(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startSubject(t, prog, "work", "1000")
		sink := &stuckSink{held: make(chan struct{}), let: make(chan struct{})}
		s := engageInto(t, sub.pid(), o, sink, "p:in work n=$arg1:u64", "r:out work v=$retval:u64", "p:odd work n=$arg1:u64 if n & 1")
		l := openedLive(t, sub.pid())
		sub.work()
		<-sink.held
		for _, st := range s.s.Stats() {
			filtered := uint64(0)
			if st.Event.Name == "odd" {
				filtered = 500
			}
			if st.Hits != 1000 || st.Filtered != filtered || st.Lost != 0 || st.Recorded != 0 {
				t.Errorf("%+v: %s: %+v", o, st.Event.Name, st)
			}
		}
		for _, name := range []string{"in", "out", "odd"} {
			refreshed(t, l, name, 1000)
		}
		close(sink.let)
		s.finish(sub.pid())
		sub.end()
		if n := sink.hits.Load(); n != 2500 {
			t.Errorf("%d hits were given", n)
		}
	}
}

// TestLiveWaitsForTheHeader: a session whose memory file has no header yet is waited
// for; who lists sessions doesn't wait, and one that never gets ready is no damage.
func TestLiveWaitsForTheHeader(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "probe_calls.c", "-O1", "-pthread"), "work", "10")
	l := attach(t, sub.pid(), Options{}, "p:w work")
	before := openedLive(t, sub.pid())
	magic := make([]byte, 8)
	if _, err := before.file().ReadAt(magic, 0); err != nil {
		t.Fatal(err)
	}
	set := func(b []byte) {
		if _, err := before.file().WriteAt(b, 0); err != nil {
			t.Error(err)
		}
	}
	set(make([]byte, 8))
	if _, err := findLive(sub.pid(), true); !errors.Is(err, ErrStarting) {
		t.Errorf("without a header: %v", err)
	}
	if pids, err := LivePIDs(); err != nil || slices.Contains(pids, sub.pid()) {
		t.Errorf("listed: %v, %v", pids, err)
	}
	patience := startPatience
	startPatience = 20 * time.Millisecond
	if _, err := OpenLive(sub.pid()); !errors.Is(err, ErrStarting) {
		t.Errorf("without a header for long: %v", err)
	}
	startPatience = time.Minute
	defer func() { startPatience = patience }()
	back := time.AfterFunc(50*time.Millisecond, func() { set(magic) })
	defer back.Stop()
	openedLive(t, sub.pid())
	sub.work()
	l.finish(sub.pid())
	sub.end()
}
