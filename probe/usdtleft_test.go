package probe

import (
	"slices"
	"testing"

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
