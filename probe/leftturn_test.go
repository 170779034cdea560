package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"kprobe/internal/fixture"
)

// TestLeftTogether has several commands change the detached probes of a process at once: each is done, and says what has
// become of it. Nobody is told that a process is traced, or a place isn't free, by what another is about to finish.
func TestLeftTogether(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "2")
	was := turnPatience
	turnPatience = patient
	defer func() { turnPatience = was }()
	all := []string{"p:a/hit hit", "p:a/back back", "p:b/up up", "p:b/down down", "p:b/mark mark"}
	for range full(3, 20) {
		together(t, len(all), func(i int) error {
			s, err := Attach(t.Context(), []int{sub.pid()}, Options{Detach: true})
			if err != nil {
				return err
			}
			if err = s.Arm(t.Context(), parseDefs(t, all[i])); err == nil {
				_, err = s.Detach(t.Context())
			}
			return errors.Join(err, s.Close(t.Context()))
		})
		leaveIn(t, sub.pid(), Options{Detach: true}, "p:c/one named", "p:c/two make_obj", "p:c/three store", "p:c/four kill_obj")
		removed := []string{"a/hit", "a/back", "b/up", "c/one", "c/two", "c/three", "c/three"}
		var mu sync.Mutex
		late := 0
		together(t, len(removed), func(i int) error {
			l, err := OpenLive(sub.pid())
			if err != nil {
				return err
			}
			defer l.Close()
			err = l.Remove(t.Context(), removed[i:i+1])
			if len(l.Pending()) > 0 {
				return fmt.Errorf("the place of %s is not free: %q", removed[i], l.Pending())
			}
			if errors.Is(err, ErrNoEvent) && removed[i] == "c/three" {
				mu.Lock()
				defer mu.Unlock()
				late++
				return nil
			}
			return err
		})
		if late != 1 {
			t.Errorf("%d were told that c/three is gone already, want 1", late)
		}
		var left []string
		for _, st := range openedLive(t, sub.pid()).Stats() {
			left = append(left, st.Event.Group+"/"+st.Event.Name)
		}
		if slices.Sort(left); !slices.Equal(left, []string{"b/down", "b/mark", "c/four"}) {
			t.Errorf("there are %q", left)
		}
		sub.says("go 10")
		if n := sub.takenOut(); n != 3 {
			t.Errorf("%d events were there, want 3", n)
		}
	}
	sub.end()
}

// together calls a function n times at once. All must succeed.
func together(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { errs[i] = f(i) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestLeavingSession looks at a process while probes are armed that are about to be left there. Those that were left before
// are seen meanwhile; if there are none, the look waits.
func TestLeavingSession(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "2")
	was := startPatience
	startPatience = patient
	defer func() { startPatience = was }()
	for _, def := range []string{"p:first hit", "p:second back"} {
		s, err := Attach(t.Context(), []int{sub.pid()}, Options{Detach: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(t.Context())
		if err := s.Arm(t.Context(), parseDefs(t, def)); err != nil {
			t.Fatal(err)
		}
		type found struct {
			l   *Live
			err error
		}
		seen := make(chan found)
		look := func() {
			l, err := OpenLive(sub.pid())
			seen <- found{l, err}
		}
		var f found
		go look()
		if strings.Contains(def, "second") {
			f = <-seen
		}
		if _, err := s.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(def, "first") {
			f = <-seen
		}
		if f.err != nil {
			t.Fatal(f.err)
		}
		if stats := f.l.Stats(); !f.l.Detached || len(stats) != 1 || stats[0].Event.Name != "first" {
			t.Errorf("while %s is armed: detached %v, %+v", def, f.l.Detached, stats)
		}
		f.l.Close()
	}
	if n := sub.takenOut(); n != 2 {
		t.Errorf("%d events were there, want 2", n)
	}
	sub.end()
}

// TestLiveUncounted: commands that change probes don't read the rings while others wait for them, and count as others do
// when they have changed them.
func TestLiveUncounted(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "2")
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:one hit", "p:two mark")
	sub.says("go 10")
	l := openedLive(t, sub.pid())
	for _, c := range []struct {
		look func() error
		hits uint64
	}{{l.Refresh, 20}, {func() error { return l.look(false) }, 0}, {func() error { return l.Remove(t.Context(), []string{"kprobes/two"}) }, 20}} {
		if err := c.look(); err != nil {
			t.Fatal(err)
		}
		if got := hitsOf(t, l.Stats(), "one"); got != c.hits {
			t.Errorf("%d hits are counted, want %d", got, c.hits)
		}
	}
	sub.takenOut()
	sub.end()
}
