package engine

import (
	"fmt"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/probe/results"
)

// emptyList is a list of events that nothing is registered for.
func emptyList() *EventList {
	begin := func(d *fetch.Def) *Event {
		return &Event{Event: results.Event{Def: d, Group: d.Group, Name: d.Event}}
	}
	return newEventList(begin, func(*fetch.Def) {})
}

// parseAll parses definitions.
func parseAll(t *testing.T, texts ...string) (defs []*fetch.Def) {
	t.Helper()
	for _, text := range texts {
		d, err := fetch.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		defs = append(defs, d)
	}
	return defs
}

// TestEventNamesComeBack has an event's name used again after it was removed: the new
// event stands in its place and goes on with its counters, also if one in between
// could not be armed.
func TestEventNamesComeBack(t *testing.T) {
	l := emptyList()
	add := func(texts ...string) []*Definition {
		t.Helper()
		added, err := l.Add(parseAll(t, texts...))
		if err != nil {
			t.Fatal(err)
		}
		return added
	}
	one := add("p:g/one f", "p:g/one h", "p:g/two f")
	first := one[0].Ev
	l.Retire(one[:1])
	if first.removed || l.byName["g/one"] != first || len(l.defs) != 2 {
		t.Fatalf("an event with a definition left: removed %v, %d definitions", first.removed, len(l.defs))
	}
	l.Retire(one[1:2])
	if !first.removed || l.byName["g/one"] != nil || len(l.all) != 2 {
		t.Fatalf("an event without a definition: removed %v, %d events", first.removed, len(l.all))
	}
	failed := add("p:g/one f", "p:g/three f")
	if failed[0].Ev.Before != first || len(l.all) != 3 || l.all[0] != failed[0].Ev {
		t.Fatalf("the event of a name used again stands at %d events", len(l.all))
	}
	l.Drop(failed)
	if len(l.all) != 2 || l.all[0] != first || len(l.defs) != 1 || l.byName["g/one"] != nil {
		t.Fatalf("%d events, %d definitions are left by those that could not be armed", len(l.all), len(l.defs))
	}
	again := add("p:g/one f")
	if again[0].Ev.Before != first || l.all[0] != again[0].Ev || len(l.gone) != 0 {
		t.Errorf("the name is used again: before %v, %d names are free", again[0].Ev.Before, len(l.gone))
	}
	l.Drop(again)
	l.Drop(one[2:])
	if len(l.all) != 1 || len(l.defs) != 0 {
		t.Errorf("%d events, %d definitions at the end", len(l.all), len(l.defs))
	}
}

// TestEventsAllOrNone has a list of definitions end with one that can't be of the event of
// its name: nothing of the others is left, and what was there stands as it stood.
func TestEventsAllOrNone(t *testing.T) {
	l := emptyList()
	there, err := l.Add(parseAll(t, "p:g/one f a=%ax", "p:g/gone f"))
	if err != nil {
		t.Fatal(err)
	}
	l.Retire(there[1:])
	if _, err := l.Add(parseAll(t, "p:g/new f", "p:g/gone f", "p:g/one h b=%bx:u8")); err == nil {
		t.Fatal("definitions of other arguments are of one event")
	}
	if len(l.defs) != 1 || len(l.all) != 2 || len(l.byName) != 1 || l.gone["g/gone"] != there[1].Ev || l.all[1] != there[1].Ev {
		t.Errorf("left are %d definitions, %d events, %d names", len(l.defs), len(l.all), len(l.byName))
	}
	there[0].Ev.user = new(Handlers)
	if _, err := l.Add(parseAll(t, "p:g/one h a=%ax")); err == nil || len(l.defs) != 1 {
		t.Errorf("a definition of a registered probe's event: %v, %d definitions", err, len(l.defs))
	}
}

// TestManyEventNames has 70,000 definitions, each of an event of its own, come, go and
// come back: names are looked up, not searched for.
func TestManyEventNames(t *testing.T) {
	l := emptyList()
	var defs []*fetch.Def
	for i := range 70000 {
		defs = append(defs, &fetch.Def{Group: "g", Event: fmt.Sprint("e", i)})
	}
	start := time.Now()
	for range 2 {
		added, err := l.Add(defs)
		if err != nil || len(l.byName) != len(defs) {
			t.Fatalf("%d names, %v", len(l.byName), err)
		}
		l.Retire(added)
	}
	if len(l.all) != len(defs) || len(l.gone) != len(defs) {
		t.Errorf("%d events, %d names are free", len(l.all), len(l.gone))
	}
	t.Log(time.Since(start))
}
