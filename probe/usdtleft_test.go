package probe

import (
	"errors"
	"slices"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/ring"
)

// is compares the program's semaphore.
func (f *forms) is(want uint16) {
	f.t.Helper()
	if got := f.semaphore(0); got != want {
		f.t.Errorf("the semaphore is %d, want %d", got, want)
	}
}

// TestUSDTSemaphoreLeft removes detached probes one by one. A command's part of a semaphore goes with the last of its probes
// that need it, also in a forked child, and in one step or two if kprobe is killed; others' parts stay.
func TestUSDTSemaphoreLeft(t *testing.T) {
	sub := startForms(t, fixture.Build(t, "usdt_forms.c", "-O1"))
	sub.semaphore(5) // another tracer's
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:one %forms:guarded n=$arg1", "p:two %*:guarded", "p:plain %forms:wide", "p:read libc:read")
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:guest libc:getpid")
	sub.is(6)
	l := openedLive(t, sub.pid())
	remove := func(event string, want uint16) {
		t.Helper()
		if err := l.Remove(t.Context(), []string{"kprobes/" + event}); err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		if got := sub.semaphore(0); got != want {
			t.Errorf("without %s the semaphore is %d, want %d", event, got, want)
		}
		sub.pass()
	}
	remove("one", 6)
	remove("plain", 6)
	remove("two", 5)
	// A kprobe that was killed has switched the event off, and done no more. The next one that looks after the process continues.
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:one %forms:guarded n=$arg1", "p:other libc:write")
	sub.is(6)
	if err := l.Refresh(); err != nil {
		t.Fatal(err)
	}
	for _, x := range append([]*Live{l}, l.more...) {
		for i := range x.snap.Probes {
			if p := &x.snap.Probes[i]; p.Name == "kprobes/one" {
				if err := ring.Hide(x.file(), x.snap.Layout, p.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	sub.is(6)
	for range 2 {
		if _, err := Recover(t.Context(), []int{sub.pid()}); err != nil {
			t.Fatal(err)
		}
		if got := sub.semaphore(0); got != 5 {
			t.Errorf("recovered, the semaphore is %d, want 5", got)
		}
	}
	// The program sets it: nothing is left to lower.
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:one %forms:guarded n=$arg1", "p:last libc:getppid")
	sub.is(6)
	sub.semaphore(-6)
	if err := l.Refresh(); err != nil {
		t.Fatal(err)
	}
	remove("one", 0)
	sub.takenOut()
	sub.is(0)
	sub.end()
}

// TestUSDTSemaphoreLeftChild: a child that was forked meanwhile has a copy of the semaphore, which is lowered there, too. One
// that is forked later has none to lower.
func TestUSDTSemaphoreLeftChild(t *testing.T) {
	sub := startForms(t, fixture.Build(t, "usdt_forms.c", "-O1"), "stay")
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:one %forms:guarded n=$arg1", "p:other libc:getpid")
	sub.is(1)
	sub.pass()
	if err := openedLive(t, sub.pid()).Remove(t.Context(), []string{"kprobes/one"}); err != nil {
		t.Fatal(err)
	}
	sub.is(0)
	if said := sub.pass(); !slices.Contains(said, "kid 0") {
		t.Errorf("without the event, the program says %q", said)
	}
	sub.takenOut()
	sub.end()
}

// named matches an event by its name.
func named(name string) func(group, event string) bool {
	return func(_, event string) bool { return name == "*" || event == name }
}

// TestUSDTSemaphoreLeftSwitched disables and enables detached probes. Each command's part of a semaphore is there while one of
// its probes that need it is on, and nobody else's changes.
func TestUSDTSemaphoreLeftSwitched(t *testing.T) {
	sub := startForms(t, fixture.Build(t, "usdt_forms.c", "-O1"))
	sub.semaphore(5) // another tracer's
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:one %forms:guarded n=$arg1", "p:two %*:guarded", "p:plain %forms:wide")
	l := openedLive(t, sub.pid())
	hits := uint64(0)
	step := func(on bool, event string, want uint16) {
		t.Helper()
		if _, err := l.Enable(named(event), on); err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		sub.is(want)
		sub.pass()
		for _, p := range l.Probes() {
			if p.Event == "one" && !p.Disabled {
				hits++
			}
		}
		if err := l.Refresh(); err != nil {
			t.Fatal(err)
		}
		if got := hitsOf(t, l.Stats(), "one"); got != hits {
			t.Errorf("%s %v: %d hits, want %d", event, on, got, hits)
		}
	}
	sub.is(6)
	step(false, "plain", 6)
	step(false, "one", 6)
	step(false, "two", 5)
	step(true, "plain", 5)
	step(true, "one", 6)
	step(false, "*", 5)
	step(true, "*", 6)
	// A kprobe that was killed has switched the events off, and done no more.
	for i := range l.snap.Probes {
		if err := ring.Enable(l.file(), l.snap.Layout, l.snap.Probes[i].ID, false); err != nil {
			t.Fatal(err)
		}
	}
	sub.is(6)
	if _, err := Recover(t.Context(), []int{sub.pid()}); err != nil {
		t.Fatal(err)
	}
	sub.is(5)
	step(true, "*", 6)
	// While somebody traces the process, events are switched, and semaphores are not.
	func() {
		s, err := Attach(t.Context(), []int{sub.pid()}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(t.Context())
		var left *SemaphoreError
		if _, err := l.Enable(named("*"), false); !errors.As(err, &left) || left.On {
			t.Errorf("disabled in a traced process: %v", err)
		}
		if err := l.Refresh(); err != nil || !l.Probes()[0].Disabled {
			t.Errorf("disabled in a traced process: %v, %+v", err, l.Probes())
		}
		sub.is(6)
	}()
	step(false, "*", 5)
	sub.takenOut()
	sub.is(5)
	sub.end()
}

// TestUSDTSemaphoreLeftTogether: the events of several commands share a semaphore, and are switched at once.
func TestUSDTSemaphoreLeftTogether(t *testing.T) {
	sub := startForms(t, fixture.Build(t, "usdt_forms.c", "-O1"))
	for _, place := range []string{"%forms:guarded", "%forms:wide", "libc:getppid"} {
		leaveIn(t, sub.pid(), Options{Detach: true}, "p:a "+place, "p:b "+place)
	}
	was := turnPatience
	turnPatience = patient
	defer func() { turnPatience = was }()
	for i := range full(3, 20) {
		together(t, 4, func(k int) error {
			l, err := OpenLive(sub.pid())
			if err != nil {
				return err
			}
			defer l.Close()
			_, err = l.Enable(named([]string{"a", "b"}[k&1]), i&1 != 0)
			return err
		})
		sub.is(uint16(i & 1))
	}
	sub.takenOut()
	sub.is(0)
	sub.end()
}

// TestUSDTSemaphoreLeftSwitchedChild: a child that was forked meanwhile has a copy of the semaphore, which is lowered there,
// too. It records nothing, so its copy isn't raised again.
func TestUSDTSemaphoreLeftSwitchedChild(t *testing.T) {
	sub := startForms(t, fixture.Build(t, "usdt_forms.c", "-O1"), "stay")
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:one %forms:guarded n=$arg1", "p:other libc:getpid")
	sub.pass()
	l := openedLive(t, sub.pid())
	for _, on := range []bool{false, true} {
		if _, err := l.Enable(named("one"), on); err != nil {
			t.Fatal(err)
		}
	}
	sub.is(1)
	if said := sub.pass(); !slices.Contains(said, "kid 0") {
		t.Errorf("the program says %q", said)
	}
	sub.takenOut()
	sub.is(0)
	sub.end()
}

// TestUSDTSemaphoreLeftTriggers: a trigger enables an event, and nobody is there to raise its semaphore.
func TestUSDTSemaphoreLeftTriggers(t *testing.T) {
	sub := startForms(t, fixture.Build(t, "usdt_forms.c", "-O1"))
	var triggers []*fetch.Trigger
	for _, text := range []string{"wide:enable_event:kprobes:one:1", "one:disable_event:kprobes:one:2"} {
		tr, err := fetch.ParseTrigger(text)
		if err != nil {
			t.Fatal(err)
		}
		triggers = append(triggers, tr)
	}
	leaveIn(t, sub.pid(), Options{Detach: true, Triggers: triggers}, "p:one %forms:guarded n=$arg1", "p:wide %forms:wide")
	l := openedLive(t, sub.pid())
	if stats := l.Stats(); len(stats) != 2 {
		t.Fatalf("%+v", stats)
	}
	for range 3 {
		sub.is(1)
		sub.pass()
	}
	if err := l.Refresh(); err != nil {
		t.Fatal(err)
	}
	if got := hitsOf(t, l.Stats(), "one"); got != 1 {
		t.Errorf("the event has %d hits, want 1: a hit of the other enables it, its own disables it", got)
	}
	// A user's switch leaves it raised: a trigger may need it again.
	if _, err := l.Enable(named("one"), false); err != nil {
		t.Fatal(err)
	}
	if _, err := Recover(t.Context(), []int{sub.pid()}); err != nil {
		t.Fatal(err)
	}
	sub.is(1)
	sub.takenOut()
	sub.is(0)
	sub.end()
}
