package fetch

import (
	"errors"
	"strings"
	"testing"
)

// Each trigger is written with a caret under what is wrong with it; those without one
// are right.
func TestParseTrigger(t *testing.T) {
	for _, c := range []struct{ text, code string }{
		{"ev:traceoff", ""},
		{"grp/ev:traceon:3 if n > 5", ""},
		{"grp:ev:traceoff:18446744073709551615", ""},
		{"ev:enable_event:other", ""},
		{"ev:enable_event:grp:other:7 if comm == \"a b\"", ""},
		{"ev:disable_event:grp/other:7", ""},
		{"ev:stacktrace:2", ""},
		{"ev:set_wprobe:w:obj+16:1", ""},
		{"ev:set_wprobe:w:obj-8", ""},
		{"ev:set_wprobe:w:f->n", ""},
		{"ev:clear_wprobe:w", ""},
		{"ev:clear_wprobe:w:3", ""},
		{"ev:clear_wprobe:w:obj+16", ""},

		{"^", "NO_EVENT_NAME"},
		{"ev^", "BAD_ACTION"},
		{"ev:^", "BAD_ACTION"},
		{"ev:^explode", "BAD_ACTION"},
		{"^1ev:traceoff", "BAD_EVENT_NAME"},
		{"ev:traceoff:^0", "BAD_TRIG_COUNT"},
		{"ev:traceoff:^-1", "BAD_TRIG_COUNT"},
		{"ev:traceoff:^x", "BAD_TRIG_COUNT"},
		{"ev:traceoff:^99999999999999999999", "BAD_TRIG_COUNT"},
		{"ev:traceoff:1^:2", "BAD_TRIGGER"},
		{"ev:enable_event^", "NO_EVENT_NAME"},
		{"ev:enable_event:other:^0", "BAD_TRIG_COUNT"},
		{"ev:enable_event:grp:^a-b", "BAD_EVENT_NAME"},
		{"ev:set_wprobe:w^", "FIELD_NOT_FOUND"},
		{"ev:set_wprobe:w:obj^+x", "BAD_DEREF_OFFS"},
		{"ev:traceoff ^unless n > 5", "BAD_TRIGGER"},
		{"ev:traceoff if ^", "NO_EP_FILTER"},
	} {
		col := strings.IndexByte(c.text, '^')
		text := strings.Replace(c.text, "^", "", 1)
		x, err := ParseTrigger(text)
		var e *SyntaxError
		switch {
		case c.code == "":
			if err != nil || x.Text != text {
				t.Errorf("%s: %v", text, err)
			}
		case !errors.As(err, &e):
			t.Errorf("%s: %v, want %s", text, err, c.code)
		case e.Code.ID() != c.code || e.Col != col:
			t.Errorf("%s: %s at %d, want %s at %d", text, e.Code.ID(), e.Col, c.code, col)
		}
	}
	x, err := ParseTrigger("a:set_wprobe:b:c->d-0x10:5 if c != 0")
	if err != nil || x.Event != "a" || x.Action != SetWprobe || x.Target != "b" || x.Field != "c->d" || x.Offset != -16 || x.Count != 5 {
		t.Errorf("%+v, %v", x, err)
	}
	x, err = ParseTrigger("grp:ev:enable_event:to:other")
	if err != nil || x.Group != "grp" || x.Event != "ev" || x.Action != EnableEvent || x.TargetGroup != "to" || x.Target != "other" {
		t.Errorf("%+v, %v", x, err)
	}
}

// A trigger's filter is parsed with the values of its event, and its errors point into
// the trigger.
func TestTriggerCondition(t *testing.T) {
	d, err := Parse("r:ev f ms=$duration s=+0($arg1):string n=$retval:s32")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, code string }{
		{"ev:traceoff", ""},
		{"ev:traceoff if ms > 50ms && s ~ \"a*\" && n < 0 && $duration > 1s", ""},
		{"ev:traceoff if x^ > 5", "FIELD_NOT_FOUND"},
		{"ev:traceoff:3 if s > ^5", "EXPECT_STRING"},
		{"ev:traceoff   if ^(n > 5", "TOO_MANY_OPEN"},
	} {
		col := strings.IndexByte(c.text, '^')
		x, err := ParseTrigger(strings.Replace(c.text, "^", "", 1))
		if err != nil {
			t.Fatal(err)
		}
		f, err := x.Condition(d)
		var e *SyntaxError
		switch {
		case c.code == "":
			if err != nil || (f == nil) != !strings.Contains(c.text, " if ") {
				t.Errorf("%s: %v, %v", c.text, f, err)
			}
		case !errors.As(err, &e) || e.Code.ID() != c.code || e.Col != col || e.Input != x.Text:
			t.Errorf("%s: %v, want %s at %d", c.text, err, c.code, col)
		}
	}
}
