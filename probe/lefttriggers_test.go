package probe

import (
	"context"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// triggered is trigger_calls with two threads, and how many hits its events have had.
type triggered struct {
	*subject
	hits func(event string) uint64
	want map[string]uint64
}

// goes has the program make its calls: each of the events has had 20 more hits, the others none.
func (s *triggered) goes(step string, events ...string) {
	s.t.Helper()
	s.says("go 10")
	s.says("turn 10")
	for _, name := range events {
		s.want[name] += 20
	}
	for name, want := range s.want {
		if got := s.hits(name); got != want {
			s.t.Errorf("%s: %s has %d hits, want %d", step, name, got, want)
		}
	}
}

var switching = []string{
	"m:disable_event:a if k == 3", "m:enable_event:a if k == 4", "m:enable_event:b:2 if k == 5", "m:disable_event:b if k == 6", "s:stacktrace:1",
}

var switched = []string{"p:a hit n=$arg1", "r:b back v=$retval", "p:m mark k=$arg1", "p:s named s=+0($arg1):string"}

// switches goes through what triggers switch, by events that are switched, and changed, by hand too.
// enable switches events by hand, add and remove change them.
func (s *triggered) switches(enable func(event string, on bool), add func(def string), remove func(event string)) {
	s.t.Helper()
	s.want["a"], s.want["b"] = 0, 0
	s.goes("at first", "a")
	s.says("mark 3")
	s.goes("disable_event")
	enable("a", true)
	s.goes("switched on by hand", "a")
	s.says("mark 3")
	s.says("mark 4")
	s.goes("off and on by triggers", "a")
	enable("a", false)
	s.says("mark 4")
	s.goes("off by hand, on by a trigger", "a")
	s.says("mark 5")
	s.goes("enable_event, once", "a", "b")
	s.says("mark 5") // nothing to switch: it counts no action
	s.says("mark 6")
	add("p:x/more down")
	s.want["more"] = 0
	s.goes("one more", "a", "more")
	s.says("mark 5")
	s.goes("enable_event, twice", "a", "b", "more")
	s.says("mark 6")
	s.says("mark 5")
	s.goes("enable_event, which may do nothing any more", "a", "more")
	enable("m", false)
	s.says("mark 3")
	s.goes("the trigger's event is off", "a", "more")
	enable("m", true)
	remove("x/more")
	delete(s.want, "more")
	s.says("mark 3")
	s.goes("the trigger's event is on again")
	s.says("name one")
	s.says("name two")
	remove("kprobes/a")
	delete(s.want, "a")
	s.says("mark 4")
	s.says("go 10")
	s.says("turn 10")
}

// TestLeftTriggersChange: triggers of probes that were left alone switch events while others are added beside them,
// removed, and switched by hand. An event that was removed isn't switched on again by a trigger.
func TestLeftTriggersChange(t *testing.T) {
	for name, more := range map[string][]string{"sequences": nil, "snapshots": {"m:snapshot if k == 7"}} {
		t.Run(name, func(t *testing.T) {
			sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "2")
			leaveIn(t, sub.pid(), Options{Detach: true, Triggers: triggersOf(t, slices.Concat(switching, more)...)}, switched...)
			l := openedLive(t, sub.pid())
			s := &triggered{sub, func(event string) uint64 {
				if err := l.Refresh(); err != nil {
					t.Fatal(err)
				}
				return hitsOf(t, l.Stats(), event)
			}, map[string]uint64{}}
			remove := func(event string) {
				t.Helper()
				if err := l.Remove(t.Context(), []string{event}); err != nil {
					t.Fatal(err)
				}
			}
			s.switches(func(event string, on bool) {
				t.Helper()
				if names, err := l.Enable(func(_, name string) bool { return name == event }, on); err != nil || len(names) != 1 {
					t.Fatal(names, err)
				}
			}, func(def string) {
				t.Helper()
				if err := l.Add(t.Context(), parseDefs(t, def)); err != nil {
					t.Fatal(err)
				}
			}, remove)
			a, stacks := s.held()
			if a != 20*9 { // as often as it was on
				t.Errorf("a has %d records, want 180: it was removed, and a trigger has switched it on", a)
			}
			if !slices.Equal(stacks, []bool{true, false}) {
				t.Errorf("hits with stacks: %v, want the first", stacks)
			}
			if more != nil {
				sub.says("mark 7")
				before, _, h := snapshotsIn(t, sub.pid())
				if h.Taken != 1 || len(before) == 0 || before[len(before)-1] != "m 7" {
					t.Errorf("%d snapshots, the last has %d hits", h.Taken, len(before))
				}
			}
			remove("kprobes/m")
			sub.says("mark 5")
			s.goes("the trigger's event is removed")
			remove("kprobes/b")
			sub.takenOut()
			sub.end()
		})
	}
}

// held counts the records of a, and says which hits of s have a stack.
func (s *triggered) held() (a int, stacks []bool) {
	s.t.Helper()
	r, err := OpenRecorder(s.pid())
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	if err := r.Live(s.t.Context(), 0, sinkOf(func(h *Hit) error {
		switch h.Event.Name {
		case "a":
			a++
		case "s":
			stacks = append(stacks, len(h.Stack) > 0)
		}
		return nil
	})); err != nil {
		s.t.Fatal(err)
	}
	return a, stacks
}

// TestTriggersChange is TestLeftTriggersChange for a session that stays. An event of the name of one that was removed
// is switched as that one was.
func TestTriggersChange(t *testing.T) {
	for name, o := range map[string]Options{"jumps": {}, "breakpoints": {NoOptimize: true}, "let go": {LetGo: true}} {
		t.Run(name, func(t *testing.T) {
			sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "2")
			o.Triggers = triggersOf(t, switching...)
			l, _ := engage(t, sub.pid(), o, switched...)
			event := func(name string) *Event {
				t.Helper()
				i := slices.IndexFunc(l.s.Events(), func(e *Event) bool { return e.Group+"/"+e.Name == name || e.Name == name })
				if i < 0 {
					t.Fatalf("there is no event %s", name)
				}
				return l.s.Events()[i]
			}
			s := &triggered{sub, func(name string) uint64 { return l.stat(name).Hits }, map[string]uint64{}}
			add := func(def string) {
				t.Helper()
				if _, err := l.s.Add(t.Context(), parseDefs(t, def)); err != nil {
					t.Fatal(err)
				}
			}
			s.switches(func(name string, on bool) {
				t.Helper()
				if err := l.s.Enable(on, event(name)); err != nil {
					t.Fatal(err)
				}
			}, add, func(name string) {
				t.Helper()
				if err := l.s.Remove(context.WithoutCancel(t.Context()), event(name)); err != nil {
					t.Fatal(err)
				}
			})
			add(switched[0])
			had := l.stat("a").Hits
			for i, on := range []bool{true, false, true} {
				sub.says("mark %d", map[bool]int{true: 4, false: 3}[on])
				sub.says("go 10")
				if on {
					had += 20
				}
				if got := l.stat("a").Hits; got != had {
					t.Errorf("a, which was added again, %d: %d hits, want %d", i, got, had)
				}
			}
			l.finish(sub.pid())
			sub.end()
		})
	}
}
