package fetch

import (
	"slices"
	"strings"
	"testing"
)

func TestWords(t *testing.T) {
	for _, c := range []struct {
		text   string
		words  []string
		filter string
	}{
		{"", nil, ""},
		{" \t ", nil, ""},
		{"p f", []string{"p", "f"}, ""},
		{"p\tf   a=%di ", []string{"p", "f", "a=%di"}, ""},
		{"p g(int, char) a", []string{"p", "g(int, char)", "a"}, ""},
		{"g(int, f(x, y), char) a", []string{"g(int, f(x, y), char)", "a"}, ""},
		{"p /x:1(2 a) b", []string{"p", "/x:1(2", "a)", "b"}, ""},
		{"p g(int a", []string{"p", "g(int", "a"}, ""},
		{`p "a  b"+4 c`, []string{"p", `"a  b"+4`, "c"}, ""},
		{"p f ((struct x *)a)->b c", []string{"p", "f", "((struct x *)a)->b", "c"}, ""},
		{"p f d=(unsigned  long)a (x *)b", []string{"p", "f", "d=(unsigned  long)a", "(x *)b"}, ""},
		{"p f (struct x, m)a->b +8((struct x *)(const char *)a) c", []string{"p", "f", "(struct x, m)a->b", "+8((struct x *)(const char *)a)", "c"}, ""},
		{"p f +0(+0(@0 b)", []string{"p", "f", "+0(+0(@0", "b)"}, ""},
		{"p f (a b) c", []string{"p", "f", "(a", "b)", "c"}, ""},
		{`p "a b`, []string{"p", `"a`, "b"}, ""},
		{"p f a if b == 'x  y' ", []string{"p", "f", "a"}, "b == 'x  y'"},
		{"p if if a == 1", []string{"p", "if"}, "a == 1"},
		{"if if a == 1", []string{"if"}, "a == 1"},
		{"-:a if", []string{"-:a", "if"}, ""},
	} {
		l := splitLine(c.text)
		var got []string
		for _, w := range l.words {
			got = append(got, w.text)
			if l.input[w.col:w.col+len(w.text)] != w.text {
				t.Errorf("%q: column %d is not that of %q", c.text, w.col, w.text)
			}
		}
		if !slices.Equal(got, c.words) {
			t.Errorf("%q: words %q, want %q", c.text, got, c.words)
		}
		if (l.filter != nil) != (c.filter != "") || l.filter != nil && l.filter.text != c.filter {
			t.Errorf("%q: filter %+v, want %q", c.text, l.filter, c.filter)
		}
	}
}

// TestLongLines parses lines that would take minutes if any step took the
// square of their length.
func TestLongLines(t *testing.T) {
	for _, text := range []string{
		"p f(" + strings.Repeat("a ", 1<<18),
		"p f " + strings.Repeat("a ", 1<<18),
		"p f a=" + strings.Repeat("+0(", 1<<18),
		"p f if " + strings.Repeat("(", 1<<18) + strings.Repeat(")", 1<<18),
		"p f if " + strings.Repeat("!", 1<<18),
		"p " + strings.Repeat("a:", 1<<18),
	} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%.20s… is accepted", text)
		}
	}
}
