package kept

import (
	"errors"
	"strings"
	"testing"

	"kprobe/fetch"
)

func parse(t *testing.T, text string) *List {
	t.Helper()
	l, err := Parse(strings.NewReader(text), "events")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func defs(t *testing.T, texts ...string) []*fetch.Def {
	t.Helper()
	var out []*fetch.Def
	for _, text := range texts {
		d, err := fetch.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

const three = `p:kprobes/open libc:openat dfd=$arg1:s32
p:kprobes/open libc:open64 dfd=$arg1:s32
r10:web/done /srv/server:handle v=$retval:s32 if v > 3
`

func TestParseKeepsWhatIsThere(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"canonical", three, three},
		{"not canonical", "p:open libc:openat $arg1:s32\n", "p:kprobes/open libc:openat arg1=$arg1:s32\n"},
		{"comments stay", "# mine\n\np:a/b f\n# end\n", "# mine\n\np:a/b f\n# end\n"},
		{"disabled", "# disabled: a/b\np:a/b f\np:a/b g\n", "# disabled: a/b\np:a/b f\np:a/b g\n"},
		{"disabled, said late", "p:a/b f\n# disabled: a/b\n", "# disabled: a/b\np:a/b f\n"},
		{"disabled, no such event", "# disabled: a/c\np:a/b f\n", "p:a/b f\n"},
		{"boot form", "p:a/b,f,x=%di;p:a/c,g\n", "p:a/b f x=%di\np:a/c g\n"},
		{"a deletion", "p:a/b f\np:a/c f\n-:a/b\n", "p:a/c f\n"},
		{"no newline at the end", "p:a/b f", "p:a/b f\n"},
		{"windows", "p:a/b f\r\n", "p:a/b f\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := parse(t, tt.in)
			if got := string(l.Bytes()); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if again := string(parse(t, string(l.Bytes())).Bytes()); again != tt.want {
				t.Errorf("read again it is\n%s", again)
			}
		})
	}
}

func TestParseNamesTheLine(t *testing.T) {
	tests := []struct {
		name, in string
		line     int
		code     fetch.Code
	}{
		{"syntax", "# c\np:a/b f\np:a/c f a=$argX\n", 3, fetch.BadArgNum},
		{"twice the same", "p:a/b f\np:a/b f\n", 2, fetch.SameProbe},
		{"another kind", "p:a/b f\n\nr:a/b g\n", 3, fetch.DiffProbeType},
		{"nothing to delete", "-:a/b\n", 1, fetch.NoSuchEvent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(tt.in), "events")
			var at *fetch.FileError
			var syntax *fetch.SyntaxError
			if !errors.As(err, &at) || at.Line != tt.line || at.Name != "events" {
				t.Fatalf("%v", err)
			}
			if !errors.As(err, &syntax) || syntax.Code != tt.code {
				t.Errorf("%v, want %v", err, tt.code)
			}
		})
	}
}

// TestAdd holds the kernel's behaviours of kprobe_events that concern more
// than one definition.
func TestAdd(t *testing.T) {
	tests := []struct {
		name string
		add  []string
		want string
		code fetch.Code // 0: none; then want is what was there before
	}{
		{"one more event", []string{"p:a/c h"}, "p:a/b f x=%di\np:a/b g x=%di\np:a/c h\n", 0},
		{"one more place", []string{"p:a/b h x=%di"}, "p:a/b f x=%di\np:a/b g x=%di\np:a/b h x=%di\n", 0},
		{"the same again", []string{"p:a/b g x=%di"}, "", fetch.SameProbe},
		{"twice in one go", []string{"p:a/c h", "p:a/c h"}, "", fetch.SameProbe},
		{"other arguments", []string{"p:a/b h y=%di"}, "", fetch.DiffArgType},
		{"fewer arguments", []string{"p:a/b h"}, "", fetch.DiffArgType},
		{"another kind", []string{"r:a/b h x=%di"}, "", fetch.DiffProbeType},
		{"the last is wrong", []string{"p:a/c h", "p:a/d h", "p:a/b h"}, "", fetch.DiffArgType},
		{"delete the event", []string{"-:a/b"}, "", 0},
		{"delete a place", []string{"-:a/b f"}, "p:a/b g x=%di\n", 0},
		{"delete a place with its arguments", []string{"-:a/b f x=%di"}, "p:a/b g x=%di\n", 0},
		{"delete with other arguments", []string{"-:a/b f x=%si"}, "", fetch.NoSuchEvent},
		{"delete a place that isn't there", []string{"-:a/b h"}, "", fetch.NoSuchEvent},
		{"delete another event", []string{"-:a/c"}, "", fetch.NoSuchEvent},
		{"delete in any group", []string{"-:b"}, "", 0},
		{"delete and add with another shape", []string{"-:a/b", "p:a/b f"}, "p:a/b f\n", 0},
		{"add and delete", []string{"p:a/c f", "-:a/c"}, "p:a/b f x=%di\np:a/b g x=%di\n", 0},
	}
	const before = "p:a/b f x=%di\np:a/b g x=%di\n"
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := parse(t, before)
			err := l.Add(defs(t, tt.add...))
			want := tt.want
			if tt.code != 0 {
				want = before
				var syntax *fetch.SyntaxError
				if !errors.As(err, &syntax) || syntax.Code != tt.code {
					t.Errorf("%v, want code %v", err, tt.code)
				}
			} else if err != nil {
				t.Error(err)
			}
			if got := string(l.Bytes()); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestEnableDeleteKeep(t *testing.T) {
	l := parse(t, "# c\n"+three)
	if got := l.Enable(Pattern("op*").Match, false); len(got) != 1 || got[0] != "kprobes/open" || !l.Disabled("kprobes/open") {
		t.Errorf("disabled %v", got)
	}
	if got := l.Places(); got["kprobes/open"] != 2 || got["web/done"] != 1 {
		t.Errorf("places: %v", got)
	}
	if got := string(l.Bytes()); got != "# c\n# disabled: kprobes/open\n"+three {
		t.Errorf("disabled:\n%s", got)
	}
	if got := l.Enable(Pattern("nothing").Match, false); got != nil {
		t.Errorf("disabled %v", got)
	}
	only := parse(t, string(l.Bytes()))
	only.Keep(Pattern("web/*").Match)
	if got := string(only.Bytes()); got != strings.SplitAfter(three, "\n")[2] {
		t.Errorf("kept:\n%s", got)
	}
	l.Enable(Pattern("*").Match, true)
	if got := string(l.Bytes()); got != "# c\n"+three {
		t.Errorf("enabled:\n%s", got)
	}
	l.Enable(Pattern("*").Match, false)
	if got := l.Delete(Pattern("open").Match); len(got) != 1 {
		t.Errorf("deleted %v", got)
	}
	if err := l.Add(defs(t, "p:open libc:openat")); err != nil || l.Disabled("kprobes/open") {
		t.Errorf("an event that is added anew is disabled, or %v", err)
	}
}

func TestPattern(t *testing.T) {
	tests := []struct {
		pattern, group, event string
		want                  bool
	}{
		{"open", "kprobes", "open", true},
		{"open", "web", "open", true},
		{"op*", "web", "open", true},
		{"*", "web", "open", true},
		{"web/*", "web", "open", true},
		{"web/*", "kprobes", "open", false},
		{"w*/op?n", "web", "open", true},
		{"[no]pen", "web", "open", true},
		{"pen", "web", "open", false},
		{"/open", "web", "open", false},
	}
	for _, tt := range tests {
		if got := Pattern(tt.pattern).Match(tt.group, tt.event); got != tt.want {
			t.Errorf("%s matches %s/%s: %v", tt.pattern, tt.group, tt.event, got)
		}
	}
	for p, ok := range map[Pattern]bool{"a": true, "a/b": true, "*/[a-c]": true, "": false, "/a": false, "a/": false, "a/b/c": false, "[": false} {
		if err := p.Check(); (err == nil) != ok {
			t.Errorf("%q: %v", string(p), err)
		}
	}
	if Pattern("a/b").Glob() || !Pattern("a/b*").Glob() {
		t.Error("Glob is wrong")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(three)
	f.Add("# disabled: a/b\np:a/b f\n")
	f.Add("p:a/b,f;-:a/b\n\n#")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(strings.NewReader(text), "events")
		if err != nil {
			return
		}
		once := string(l.Bytes())
		again, err := Parse(strings.NewReader(once), "events")
		if err != nil {
			t.Fatalf("%q: what was written can't be read: %v", once, err)
		}
		if twice := string(again.Bytes()); twice != once {
			t.Fatalf("%q became %q", once, twice)
		}
	})
}
