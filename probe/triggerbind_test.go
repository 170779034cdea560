package probe

import (
	"context"
	"errors"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// A trigger that names no group is at the hits of the event that it was found to be of,
// and of none of that name which comes later in another group.
func TestTriggersOfOneGroup(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "1")
	o := Options{Triggers: triggersOf(t, "b:traceoff")}
	l, _ := engage(t, sub.pid(), o, "p:a hit", "p:one/b mark k=$arg1")
	if err := l.s.Arm(t.Context(), parseDefs(t, "p:two/b up")); err != nil {
		t.Fatal(err)
	}
	sub.says("turn 10")
	sub.says("go 10")
	if st := l.stat("a"); st.Hits != 10 {
		t.Errorf("two/b has a trigger of one/b: %d hits of a, want 10", st.Hits)
	}
	sub.says("mark 1")
	sub.says("go 10")
	if st := l.stat("a"); st.Hits != 10 {
		t.Errorf("%d hits of a behind one/b's traceoff, want 10", st.Hits)
	}
	l.finish(sub.pid())
	sub.end()
}

// Triggers are of the events that came to be, not of those of an Arm that failed.
func TestTriggersAfterFailedArm(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "1")
	o := Options{Triggers: triggersOf(t, "m:disable_event:a if k == 3")}
	s, err := Attach(t.Context(), []int{sub.pid()}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	var de *DefError
	if err := s.Arm(t.Context(), parseDefs(t, "p:one/a hit", "p:one/m mark k=$arg1", "p:x nowhere_at_all")); !errors.As(err, &de) {
		t.Fatalf("armed where there is nothing: %v", err)
	}
	var te *TriggerError
	if err := s.Arm(t.Context(), parseDefs(t, "p:two/a hit")); !errors.As(err, &te) {
		t.Errorf("armed with a trigger whose event is not there: %v", err)
	}
	if err := s.Arm(t.Context(), parseDefs(t, "p:two/a hit", "p:two/m mark k=$arg1")); err != nil {
		t.Fatal(err)
	}
	sub.says("go 10")
	sub.says("mark 3")
	sub.says("go 10")
	for _, st := range s.Stats() {
		if st.Event.Name == "a" && (st.Hits != 10 || !st.Disabled) {
			t.Errorf("%s/a: %d hits, want 10; switched off: %v", st.Event.Group, st.Hits, st.Disabled)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	checkClean(t, sub.pid())
	sub.end()
}

// Calls that are changed aren't limited, ended or triggered by what says which hits are
// recorded.
func TestInjectControls(t *testing.T) {
	for _, o := range []Options{{Limit: 1}, {Expire: time.Second}, {Triggers: triggersOf(t, "a:traceoff")}} {
		if o.Inject = noSpace(1, 0); !refusedSession(o) {
			t.Errorf("%+v is a session", o)
		}
	}
}

func refusedSession(o Options) bool {
	_, err := Attach(context.Background(), nil, o)
	return errors.Is(err, ErrInjectControls)
}
