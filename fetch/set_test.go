package fetch

import (
	"testing"
)

func mustParse(t *testing.T, text string) *Def {
	t.Helper()
	d, err := Parse(text)
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	return d
}

// TestShapes are the rules for a second place of an event. A caret in the
// second definition is the column of the error.
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		first, second string
		code          Code // 0: goes together
	}{
		{"p:ev f a=%di", "p:ev g a=%di", 0},
		{"p:ev f a=%di", "p:ev g a=%si", 0},
		{"p:ev f a=%di", "p:ev f a=%si", 0},
		{"p:ev f a=%di", "p:ev f+4 a=%di:x64", 0},
		{"p:ev f a=%di if a > 1", "p:ev f a=%di if a > 2", 0},
		{"r:ev f", "r5:ev g", 0},
		{"p:ev f a=%di", "^p:ev f a=%di", SameProbe},
		{"p f %di", "^f %di", SameProbe},
		{"r:ev f", "^p:ev f%return", SameProbe},
		{"p:ev f", "^r:ev g", DiffProbeType},
		{"p:ev f", "^j:ev g", DiffProbeType},
		{"p:ev f a=%di", "p:ev g ^b=%di", DiffArgType},
		{"p:ev f a=%di", "p:ev g ^a=%di:u8", DiffArgType},
		{"p:ev f a=+0(%di):u8[2]", "p:ev g ^a=+0(%di):u8[3]", DiffArgType},
		{"p:ev f a=+0(%di):u8[1]", "p:ev g ^a=+0(%di):u8", DiffArgType},
		{"p:ev f a=%di:b2@1/8", "p:ev g ^a=%di:b2@2/8", DiffArgType},
		{"p:ev f a=%di b=%si", "p:ev g a=%di ^c=%si", DiffArgType},
		{"p:ev f a=%di b=%si", "p:ev g a=%di ^", DiffArgType},
		{"p:ev f a=%di", "p:ev g a=%di ^b=%si", DiffArgType},
		{"p:ev f a=name", "p:ev g ^a=%di", DiffArgType},
	} {
		t.Run(c.second, func(t *testing.T) {
			want := -1
			text := c.second
			for i := range text {
				if text[i] == '^' {
					want, text = i, text[:i]+text[i+1:]
					break
				}
			}
			var s Set
			if err := s.Add(mustParse(t, c.first)); err != nil {
				t.Fatal(err)
			}
			err := s.Add(mustParse(t, text))
			if c.code == 0 {
				if err != nil || s.Len() != 2 {
					t.Errorf("%v, %d definitions", err, s.Len())
				}
				return
			}
			e, _ := err.(*SyntaxError)
			if e == nil || e.Code != c.code || e.Col != want || s.Len() != 1 {
				t.Errorf("%v, %d definitions; want %s at %d", err, s.Len(), c.code, want)
			}
		})
	}
}

func TestDeletes(t *testing.T) {
	for _, c := range []struct {
		del  string
		left int
		code Code
	}{
		// Without a group every group's event is meant.
		{"-:ev", 1, 0},
		{"-:kprobes/ev", 2, 0},
		{"-:grp/ev", 3, 0},
		{"-:ev f", 3, 0},
		{"-:ev g", 3, 0},
		{"-:ev f a=%di", 3, 0},
		{"-:ev f %di", 4, NoSuchEvent},
		{"!p:ev f", 3, 0},
		{"-:ev f a=%si", 4, NoSuchEvent},
		{"-:ev f a=%di b=%si", 4, NoSuchEvent},
		{"-:ev h", 3, 0},
		{"-:nothing", 4, NoSuchEvent},
		{"-:other/ev", 4, NoSuchEvent},
		{"-:other k", 3, 0},
		{"-:other k %di", 3, 0},
		{"-:other k arg1=%di", 3, 0},
	} {
		t.Run(c.del, func(t *testing.T) {
			var s Set
			err := s.AddAll([]*Def{
				mustParse(t, "p:ev f a=%di"), mustParse(t, "p:ev g a=%di"),
				mustParse(t, "p:grp/ev h"), mustParse(t, "p:other k %di"),
			})
			if err != nil {
				t.Fatal(err)
			}
			err = s.Add(mustParse(t, c.del))
			if c.code != 0 {
				if !isCode(err, c.code) || s.Len() != 4 {
					t.Errorf("%v, %d left", err, s.Len())
				}
				return
			}
			if err != nil || s.Len() != c.left {
				t.Errorf("%v, %d left, want %d", err, s.Len(), c.left)
			}
		})
	}
}

func TestAddAllOrNone(t *testing.T) {
	var s Set
	if err := s.Add(mustParse(t, "p:keep f")); err != nil {
		t.Fatal(err)
	}
	err := s.AddAll([]*Def{mustParse(t, "p:a f"), mustParse(t, "-:keep"), mustParse(t, "p:a f")})
	if !isCode(err, SameProbe) {
		t.Errorf("AddAll = %v", err)
	}
	if all := s.All(); len(all) != 1 || all[0].Event != "keep" {
		t.Errorf("left %v", all)
	}
	if err := s.AddAll([]*Def{mustParse(t, "p:a f"), mustParse(t, "p:a g")}); err != nil {
		t.Error(err)
	}
	if n := len(s.Event(DefaultGroup, "a")); n != 2 {
		t.Errorf("event a has %d places", n)
	}
}
