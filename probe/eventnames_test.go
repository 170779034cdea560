package probe

import (
	"fmt"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/probe/engine"
)

// nameSession is a session without processes.
func nameSession() *Session {
	s := &Session{engine: engine.New(engine.Options{}, nil, nil), users: map[*fetch.Def]*registered{}}
	s.engine.Owner = sessionOwner{s}
	return s
}

func parsed(t *testing.T, text string) *fetch.Def {
	t.Helper()
	d, err := fetch.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestEventNamesComeBack has an event's name used again after it was removed: the new
// event stands in its place and goes on with its counters, also if one in between
// could not be armed.
func TestEventNamesComeBack(t *testing.T) {
	s := nameSession()
	add := func(texts ...string) []*engine.Definition {
		t.Helper()
		var defs []*fetch.Def
		for _, text := range texts {
			defs = append(defs, parsed(t, text))
		}
		added, err := s.engine.AddEvents(defs)
		if err != nil {
			t.Fatal(err)
		}
		return added
	}
	one := add("p:g/one f", "p:g/one h", "p:g/two f")
	first := one[0].Ev
	s.engine.RetireEvents(one[:1])
	if first.Removed || s.engine.ByName["g/one"] != first || len(s.engine.Defs) != 2 {
		t.Fatalf("an event with a definition left: removed %v, %d definitions", first.Removed, len(s.engine.Defs))
	}
	s.engine.RetireEvents(one[1:2])
	if !first.Removed || s.engine.ByName["g/one"] != nil || len(s.engine.Events) != 2 {
		t.Fatalf("an event without a definition: removed %v, %d events", first.Removed, len(s.engine.Events))
	}
	failed := add("p:g/one f", "p:g/three f")
	if failed[0].Ev.Before != first || len(s.engine.Events) != 3 || s.engine.Events[0] != failed[0].Ev {
		t.Fatalf("the event of a name used again stands at %d events", len(s.engine.Events))
	}
	s.engine.DropEvents(failed)
	if len(s.engine.Events) != 2 || s.engine.Events[0] != first || len(s.engine.Defs) != 1 || s.engine.ByName["g/one"] != nil {
		t.Fatalf("%d events, %d definitions are left by those that could not be armed", len(s.engine.Events), len(s.engine.Defs))
	}
	again := add("p:g/one f")
	if again[0].Ev.Before != first || s.engine.Events[0] != again[0].Ev || len(s.engine.Gone) != 0 {
		t.Errorf("the name is used again: before %v, %d names are free", again[0].Ev.Before, len(s.engine.Gone))
	}
	s.engine.DropEvents(again)
	s.engine.DropEvents(one[2:])
	if len(s.engine.Events) != 1 || len(s.engine.Defs) != 0 {
		t.Errorf("%d events, %d definitions at the end", len(s.engine.Events), len(s.engine.Defs))
	}
}

// TestManyEventNames has 70,000 definitions, each of an event of its own, come, go and
// come back: names are looked up, not searched for.
func TestManyEventNames(t *testing.T) {
	s := nameSession()
	var defs []*fetch.Def
	for i := range 70000 {
		defs = append(defs, &fetch.Def{Group: "g", Event: fmt.Sprint("e", i)})
	}
	start := time.Now()
	for range 2 {
		added, err := s.engine.AddEvents(defs)
		if err != nil || len(s.engine.ByName) != len(defs) {
			t.Fatalf("%d names, %v", len(s.engine.ByName), err)
		}
		s.engine.RetireEvents(added)
	}
	if len(s.engine.Events) != len(defs) || len(s.engine.Gone) != len(defs) {
		t.Errorf("%d events, %d names are free", len(s.engine.Events), len(s.engine.Gone))
	}
	t.Log(time.Since(start))
}
