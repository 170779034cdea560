package probe

import (
	"errors"
	"fmt"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/ring"
)

// TestLeftBeside leaves probes in functions that stand next to each other without padding, by two commands one after
// the other, in either order: a jump of the first may have bytes of the next function as part of its
// displacement, which the second must leave as they are. The program goes on, and each call of what is probed
// is a hit; what the second can't have it says. A session that traces meanwhile leaves those bytes alone, too.
func TestLeftBeside(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "2")
	functions := []string{"hit", "back", "up", "down"}
	refused, both := 0, 0
	for i, first := range functions {
		for j, second := range functions {
			if first == second || full(0, 1) == 0 && i-j != 1 && j-i != 1 {
				continue
			}
			for kinds := range 8 {
				one := fmt.Sprintf("%c:one %s n=$arg1", "pr"[kinds&1], first)
				if kinds&1 == 1 {
					one = "r:one " + first
				}
				two := fmt.Sprintf("%c:two %s", "pr"[kinds>>1&1], second)
				traced := kinds&4 != 0
				step := fmt.Sprintf("%s, %s, traced: %v", one, two, traced)
				leaveIn(t, sub.pid(), Options{Detach: true}, one)
				l := openedLive(t, sub.pid())
				var err error
				var by *live
				switch {
				case !traced:
					err = l.Add(t.Context(), parseDefs(t, two))
				case besides(t, sub.pid(), two):
					by, _ = engage(t, sub.pid(), Options{}, two)
				default:
					err = errTest
				}
				var def *DefError
				if err != nil && !errors.Is(err, errTest) && !errors.As(err, &def) && !errors.Is(err, ErrNothingLeft) {
					t.Fatalf("%s: %v", step, err)
				}
				want := map[string]uint64{"one": 20}
				switch {
				case err != nil:
					refused++
				case traced:
					both++
				default:
					want["two"] = 20
					both++
				}
				sub.says("go 10")
				sub.says("turn 10")
				if err := l.Refresh(); err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				for name, n := range want {
					if got := hitsOf(t, l.Stats(), name); got != n {
						t.Errorf("%s: %s has %d hits, want %d", step, name, got, n)
					}
				}
				if by != nil {
					if got := by.stat("two").Hits; got != 20 {
						t.Errorf("%s: two has %d hits, want 20", step, got)
					}
					by.stop()
					<-by.done
					if err := by.s.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if err := l.takeOut(t.Context(), nil, func(*ring.ProbeState) bool { return true }); err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				checkClean(t, sub.pid())
				if t.Failed() {
					t.Fatal(step)
				}
			}
		}
	}
	t.Logf("both were there %d times; %d times the second was refused", both, refused)
	if both == 0 {
		t.Error("never were both there")
	}
	sub.end()
}

// besides reports whether a definition can be armed in a process beside detached probes.
func besides(t *testing.T, pid int, def string) bool {
	t.Helper()
	s, err := Attach(t.Context(), []int{pid}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	err = s.Arm(t.Context(), parseDefs(t, def))
	var refused *RefusedError
	if err != nil && !errors.As(err, &refused) {
		t.Fatal(err)
	}
	return err == nil
}
