package fetch

import (
	"errors"
	"testing"
)

func TestCondition(t *testing.T) {
	fields := []Field{{"ret", Type{Base: Signed, Size: 8}}, {"size", Type{Base: Unsigned, Size: 8}}, {"name", Type{Base: String, Size: 8}}}
	minus := ^uint64(0)
	values := []ConditionValue{{Int: minus}, {Int: 4097}, {Text: []byte("read")}}
	hit := &ConditionHit{PID: 3, TID: 4, CPU: 1, Comm: "prog", Duration: 11_000_000}
	for _, c := range []struct {
		text string
		want bool
	}{
		{"$retval < 0", true},
		{"$retval >= 0", false},
		{"$retval == -1 && size > 4096", true},
		{"size <= 4096 || !(ret == 0)", true},
		{`name == "read"`, true},
		{`name ~ "w*"`, false},
		{`name == "$retval"`, false},
		{"$duration > 10ms", true},
		{"$duration > 12ms", false},
		{"comm == prog && tid == 4 && cpu == 1", true},
	} {
		cond, err := ParseCondition(c.text, "ret")
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		b, err := cond.Bind(fields)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := b.Match(hit, values); got != c.want {
			t.Errorf("%s: %v", c.text, got)
		}
		if b.Match(hit, []ConditionValue{{Fault: true}, {Fault: true}, {Fault: true}}) && c.text[0] == '$' && c.text[1] == 'r' {
			t.Errorf("%s: a fault fulfils it", c.text)
		}
	}
	for _, text := range []string{"", "$retval", "$retval <", "($retval < 0", "$retval < 0)", "$retval < 0 0", "$nothing < 1", "'"} {
		var e *SyntaxError
		if _, err := ParseCondition(text, "ret"); !errors.As(err, &e) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"none == 1", "ret == text", "name < 5"} {
		cond, err := ParseCondition(text, "ret")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var e *SyntaxError
		if _, err := cond.Bind(fields); !errors.As(err, &e) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
