package triggers

import (
	"errors"
	"testing"

	"kprobe/fetch"
)

func parsed(t *testing.T, texts ...string) (out []*fetch.Trigger) {
	t.Helper()
	for _, text := range texts {
		x, err := fetch.ParseTrigger(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		out = append(out, x)
	}
	return out
}

func definitions(t *testing.T, lines ...string) (out []*fetch.Def) {
	t.Helper()
	for _, l := range lines {
		d, err := fetch.Parse(l)
		if err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		out = append(out, d)
	}
	return out
}

func set(t *testing.T, texts ...string) *Set {
	t.Helper()
	c, err := New(parsed(t, texts...), false)
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

// A trigger switches the event that it was found to, however many come later of that name,
// and how an event begins is said by the first that switches it, however it is named.
func TestBind(t *testing.T) {
	c := set(t, "m:disable_event:one/a", "m:enable_event:a", "m:enable_event:two/a")
	for i, w := range []struct {
		group string
		off   bool
		kinds [3]uint8 // of the triggers
	}{{"one", false, [3]uint8{1, 1, 0}}, {"three", false, [3]uint8{1, 1, 0}}, {"two", true, [3]uint8{1, 1, 2}}, {"one", false, [3]uint8{1, 1, 2}}} {
		off := c.Bind(w.group, "a", false)
		if got := [3]uint8{c.List[0].Kind, c.List[1].Kind, c.List[2].Kind}; got != w.kinds || off != w.off {
			t.Errorf("%d, %s/a: triggers of %v, off %v", i, w.group, got, off)
		}
	}
	if c.Kind("one/a") != 1 || c.Kind("two/a") != 2 || c.Kind("three/a") != 0 {
		t.Errorf("numbers %v", c.kinds)
	}
}

// Events that didn't come to be leave the triggers as they were, to be checked and bound
// again.
func TestBeginUndone(t *testing.T) {
	c := set(t, "a:traceoff", "a:enable_event:b")
	asked := 0
	known := func() []*fetch.Def { asked++; return definitions(t, "p:one/a hit", "p:one/b up") }
	if err := c.Known(known); err != nil {
		t.Fatal(err)
	}
	undo := c.Begin()
	c.Bind("one", "a", false)
	if off := c.Bind("one", "b", false); !off || len(c.Of("one/a")) != 2 || c.Kind("one/b") == 0 {
		t.Errorf("bound to %v, off %v", c.Of("one/a"), off)
	}
	undo()
	if len(c.Of("one/a")) != 0 || c.Kind("one/b") != 0 {
		t.Error("what was undone is bound")
	}
	if err := c.Known(known); err != nil || asked != 2 {
		t.Errorf("checked %d times: %v", asked, err)
	}
	c.Begin()
	c.Bind("two", "a", false)
	if len(c.Of("two/a")) != 2 {
		t.Error("an event of another group isn't bound after what was undone")
	}
	if err := c.Known(known); err != nil || asked != 2 {
		t.Errorf("checked again when bound: %v", err)
	}
}

// A watchpoint's triggers are found to the first watchpoint of their name, and to nothing
// that isn't one.
func TestBindWatch(t *testing.T) {
	c := set(t, "a:set_wprobe:w:n", "a:clear_wprobe:w")
	c.Bind("one", "w", false)
	c.Bind("two", "w", true)
	c.Bind("three", "w", true)
	for _, x := range c.List {
		if x.Watches != "two/w" || !x.MovesWatch() {
			t.Errorf("%v moves %q", x.Action, x.Watches)
		}
	}
	if NeedTracer(c.List) == "" || NeedTracer(set(t, "a:traceoff").List) != "" {
		t.Error("which triggers need a tracer")
	}
}

// Whether recording begins on or off is said by the first that switches it; snapshots are
// of probes that are left alone.
func TestNew(t *testing.T) {
	if c := set(t, "a:enable_event:b"); c.Gated || c.StartsOff {
		t.Errorf("%+v", c)
	}
	if c := set(t, "a:traceoff", "b:traceon"); !c.Gated || c.StartsOff {
		t.Errorf("off first: %+v", c)
	}
	if c := set(t, "a:traceon", "b:traceoff"); !c.Gated || !c.StartsOff {
		t.Errorf("on first: %+v", c)
	}
	var te *Error
	if _, err := New(parsed(t, "a:snapshot"), false); !errors.As(err, &te) || te.Trigger.Event != "a" {
		t.Errorf("a snapshot of what is traced: %v", err)
	}
	if c, err := New(parsed(t, "a:snapshot"), true); err != nil || !c.Snapshots {
		t.Errorf("a snapshot of what is left alone: %v", err)
	}
	if _, err := New(make([]*fetch.Trigger, 65), false); !errors.Is(err, ErrMany) {
		t.Errorf("65 triggers: %v", err)
	}
}

// What is wrong with a trigger is said, with the place in it.
func TestCheck(t *testing.T) {
	defs := definitions(t, "p:a hit n=$arg1", "p:one/b up", "p:two/b down")
	for _, c := range []struct{ text, want string }{
		{"x:traceoff", "No such event: the events are kprobes/a, one/b, two/b"},
		{"b:traceoff", "No such event: it may be one of one/b, two/b: name its group, too"},
		{"a:enable_event:c", "No such event: the events are kprobes/a, one/b, two/b"},
		{"a:enable_event:b", "No such event: it may be one of one/b, two/b: name its group, too"},
		{"a:traceoff if m > 1", "Field not found"},
	} {
		err := Check(parsed(t, c.text), defs)
		var te *Error
		var se *fetch.SyntaxError
		if !errors.As(err, &te) || !errors.As(err, &se) || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
	if err := Check(parsed(t, "a:traceoff if n > 1", "one/b:enable_event:two/b"), defs); err != nil {
		t.Errorf("what can be had: %v", err)
	}
}
