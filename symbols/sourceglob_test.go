package symbols

import (
	"slices"
	"strings"
	"testing"
)

const oneLineProgram = `
static inline __attribute__((always_inline)) int inl(int a) {
  int b = a * 3;
  asm volatile("" : "+r"(b));
  return b + 1;
}
int one(int x) { return x + 1; }
__attribute__((noinline)) int strone(int x) { asm volatile(""); return x + 2; }
__attribute__((noinline)) int strtwo(int x) { asm volatile(""); return inl(x) + inl(x + 5); }
static inline __attribute__((always_inline)) int same(int x) { asm volatile(""); return x * 7; } int host(int x) { return same(x) + 1; }
int main(int c, char **v) {
  (void)v;
  return strone(c) + strtwo(c) + one(c) + inl(c) + host(c);
}
`

// TestLinesOfInlined: the line of a call belongs to the caller, also where what
// is inlined begins at the same instruction.
func TestLinesOfInlined(t *testing.T) {
	s, err := OpenFileSpace(buildText(t, "oneline.c", oneLineProgram, "-O2"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ has, not []int }{
		"one": {[]int{7}, nil}, "strtwo": {[]int{9}, nil}, "inl": {[]int{2, 3, 4, 5}, []int{9, 13}}, "host": {[]int{10}, nil}, "same": {[]int{10}, nil},
	} {
		sites, err := s.Resolve(Place{Symbol: name})
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, site := range sites {
			list, _, _, err := s.Lines(site)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range list {
				got = append(got, l.Line)
			}
		}
		for _, line := range tt.has {
			if !slices.Contains(got, line) {
				t.Errorf("line %d of %s is missing: %v", line, name, got)
			}
		}
		for _, line := range tt.not {
			if slices.Contains(got, line) {
				t.Errorf("line %d is not of %s: %v", line, name, got)
			}
		}
	}
}

// TestSourceGlobs: a pattern for the source file, of a line and of functions.
func TestSourceGlobs(t *testing.T) {
	s, err := OpenFileSpace(buildText(t, "oneline.c", oneLineProgram, "-O2"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		place Place
		want  string // of the functions, or that of an error
	}{
		{Place{Kind: PlaceLine, File: "*.c", Line: 9}, "strtwo"},
		{Place{Kind: PlaceLine, File: "one?ine.[ch]", Line: 9}, "strtwo"},
		{Place{Kind: PlaceLine, File: "*/oneline.c", Line: 9}, "strtwo"},
		{Place{Kind: PlaceLine, File: "*.cc", Line: 9}, "no source file *.cc"},
		{Place{Symbol: "str*", File: "oneline.c"}, "strone strtwo"},
		{Place{Symbol: "str*", File: "*.c"}, "strone strtwo"},
		{Place{Symbol: "str*", File: "other.c"}, "no symbol str*@other.c"},
		{Place{Symbol: "strone", File: "oneline.c"}, "strone"},
		{Place{Symbol: "strone", File: "other.c"}, "no symbol strone@other.c"},
	} {
		sites, err := s.Resolve(tt.place)
		if err != nil {
			if !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%s: %v", tt.place, err)
			}
			continue
		}
		var got []string
		for _, site := range sites {
			got = append(got, site.Func.Symbol.Name)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.place, got, tt.want)
		}
	}
	for path, want := range map[string][2]string{"/a/b/c.c": {"c.c", "b/c.c"}, "c.c": {"c.c", "c.c"}, "/c.c": {"c.c", "/c.c"}, "": {"", ""}} {
		if got := [2]string{lastElements(path, 1), lastElements(path, 2)}; got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
