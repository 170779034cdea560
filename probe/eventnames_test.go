package probe

import (
	"fmt"
	"testing"
	"time"

	"kprobe/fetch"
)

// nameSession is a session without processes.
func nameSession() *Session {
	s := &Session{engine: newEngine(config{}, nil, nil), users: map[*fetch.Def]*registered{}}
	s.owner = sessionOwner{s}
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
	add := func(texts ...string) []*defOf {
		t.Helper()
		var defs []*fetch.Def
		for _, text := range texts {
			defs = append(defs, parsed(t, text))
		}
		added, err := s.addEvents(defs)
		if err != nil {
			t.Fatal(err)
		}
		return added
	}
	one := add("p:g/one f", "p:g/one h", "p:g/two f")
	first := one[0].ev
	s.retireEvents(one[:1])
	if first.removed || s.byName["g/one"] != first || len(s.defs) != 2 {
		t.Fatalf("an event with a definition left: removed %v, %d definitions", first.removed, len(s.defs))
	}
	s.retireEvents(one[1:2])
	if !first.removed || s.byName["g/one"] != nil || len(s.events) != 2 {
		t.Fatalf("an event without a definition: removed %v, %d events", first.removed, len(s.events))
	}
	failed := add("p:g/one f", "p:g/three f")
	if failed[0].ev.before != first || len(s.events) != 3 || s.events[0] != failed[0].ev {
		t.Fatalf("the event of a name used again stands at %d events", len(s.events))
	}
	s.dropEvents(failed)
	if len(s.events) != 2 || s.events[0] != first || len(s.defs) != 1 || s.byName["g/one"] != nil {
		t.Fatalf("%d events, %d definitions are left by those that could not be armed", len(s.events), len(s.defs))
	}
	again := add("p:g/one f")
	if again[0].ev.before != first || s.events[0] != again[0].ev || len(s.gone) != 0 {
		t.Errorf("the name is used again: before %v, %d names are free", again[0].ev.before, len(s.gone))
	}
	s.dropEvents(again)
	s.dropEvents(one[2:])
	if len(s.events) != 1 || len(s.defs) != 0 {
		t.Errorf("%d events, %d definitions at the end", len(s.events), len(s.defs))
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
		added, err := s.addEvents(defs)
		if err != nil || len(s.byName) != len(defs) {
			t.Fatalf("%d names, %v", len(s.byName), err)
		}
		s.retireEvents(added)
	}
	if len(s.events) != len(defs) || len(s.gone) != len(defs) {
		t.Errorf("%d events, %d names are free", len(s.events), len(s.gone))
	}
	t.Log(time.Since(start))
}
