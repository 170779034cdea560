package symbols

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// buildText compiles a source given as text with debug information.
func buildText(t *testing.T, name, text string, flags ...string) string {
	t.Helper()
	src := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return fixture.BuildFile(t, src, append([]string{"-g"}, flags...)...)
}

const clonesProgram = `
#include <stdio.h>
#include <stdlib.h>
volatile int sink;
struct S { int a, b, c; };
static __attribute__((noinline)) int isra(struct S *s, int unused) { return s->a * 3 + sink; }
static __attribute__((noinline)) int prop(int a, int b) { for (int i = 0; i < b; i++) sink += a * i; return sink; }
static int part(int n)
{
	if (n > 3)
		return n;
	for (int i = 0; i < n; i++) {
		sink += i;
		printf("%d\n", i);
		if (sink > 100)
			abort();
		for (int j = 0; j < 5; j++) {
			sink ^= j;
			printf("%d %d\n", j, sink);
		}
	}
	return sink;
}
int a1(int n) { return part(n) + 1; }
int a2(int n) { return part(n + 1) + 2; }
int a3(int n) { return part(n - 1) + 2; }
int main(int c, char **v)
{
	struct S s = { c, 2, 3 };
	return isra(&s, 1) + prop(c, 7) + a1(c) + a2(c) + a3(c) == 1000;
}
`

// A function that the compiler made clones of is found by its own name and by
// the clone's; what it split off counts no call that an instance has counted.
func TestClonesOfFunctions(t *testing.T) {
	s, err := OpenFileSpace(buildText(t, "clones.c", clonesProgram, "-O3"))
	if err != nil {
		t.Fatal(err)
	}
	names := func(p Place) (out []string) {
		t.Helper()
		sites, err := s.Resolve(p)
		if err != nil {
			t.Errorf("%s: %v", p, err)
		}
		for _, site := range sites {
			if site.NamedAs().Inlined != "" {
				out = append(out, site.NamedAs().Inlined+" in "+site.Func.Symbol.Name)
			} else {
				out = append(out, site.Name())
			}
		}
		slices.Sort(out)
		return out
	}
	for _, c := range []struct{ name, has, suffix string }{
		{"isra", "isra.", ".isra."},
		{"prop", "prop.", ".constprop."},
	} {
		got := names(Place{Symbol: c.name})
		if len(got) != 1 || !strings.HasPrefix(got[0], c.has) || !strings.Contains(got[0], c.suffix) {
			t.Errorf("%s is %q, want its clone", c.name, got)
			continue
		}
		if again := names(Place{Symbol: got[0]}); !slices.Equal(again, got) {
			t.Errorf("%s is %q", got[0], again)
		}
	}
	if got, want := names(Place{Symbol: "part"}), []string{"part in a1", "part in a2", "part in a3", "part in main", "part in main", "part in main"}; !slices.Equal(got, want) {
		t.Errorf("part is %q, want %q", got, want)
	}
	for _, name := range []string{"part.part.0", "part.part.0.cold"} {
		if got := names(Place{Symbol: name}); !slices.Equal(got, []string{name}) {
			t.Errorf("%s is %q", name, got)
		}
	}
}

const structorsProgram = `
namespace ns {
struct Base { int b; Base(int x); virtual ~Base(); };
struct Box : virtual Base { int side; Box(int s); ~Box(); int scale(int k) const; };
Base::Base(int x) : b(x) {}
Base::~Base() { b = 0; }
Box::Box(int s) : Base(s), side(s) {}
__attribute__((noinline)) Box::~Box() { side = 0; asm volatile("" ::: "memory"); }
__attribute__((noinline)) int Box::scale(int k) const { return side * k; }
}
int main(int argc, char **argv) { ns::Box b(argc); return b.scale(argc) == 77; }
`

// A constructor's and a destructor's several functions are one place each, but
// for those that leave the work to another; all have names of their own. Names
// that lack their namespace are answered with the whole.
func TestStructorsAndNamespaces(t *testing.T) {
	s, err := OpenFileSpace(buildText(t, "structors.cc", structorsProgram, "-O1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"ns::Box::Box":  {"_ZN2ns3BoxC1Ei", "_ZN2ns3BoxC2Ei"},
		"ns::Box::~Box": {"_ZN2ns3BoxD1Ev", "_ZN2ns3BoxD2Ev"}, // D0 calls D1
	} {
		sites, err := s.Resolve(Place{Symbol: name})
		var got []string
		for _, site := range sites {
			got = append(got, site.Func.Symbol.Name)
		}
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
		var several *AmbiguousError
		if _, err := s.Resolve(Place{Symbol: name, Offset: 1}); !errors.As(err, &several) {
			t.Errorf("%s+1: %v", name, err)
			continue
		}
		for _, c := range several.Candidates {
			if !strings.HasPrefix(c.Note, "complete object, ") && !strings.HasPrefix(c.Note, "base object, ") && !strings.HasPrefix(c.Note, "deleting, ") {
				t.Errorf("%s: %+v", name, c)
			}
			if sites, err := s.Resolve(Place{Symbol: c.Text}); err != nil || len(sites) != 1 || sites[0].Offset != 0 {
				t.Errorf("%s: %+v, %v", c.Text, sites, err)
			}
		}
	}
	if sites, err := s.Resolve(Place{Symbol: "ns::Base::Base"}); err != nil || len(sites) != 1 {
		t.Errorf("one constructor under two names: %+v, %v", sites, err)
	}
	for _, name := range []string{"Box::scale", "x::scale"} {
		_, err := s.Resolve(Place{Symbol: name})
		var nf *NotFoundError
		found := errors.As(err, &nf) && slices.Contains(nf.Near, "ns::Box::scale")
		if found != (name == "Box::scale") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, near := range nf.Near {
			if _, err := s.Resolve(Place{Symbol: near}); err != nil {
				t.Errorf("%s is offered: %v", near, err)
			}
		}
	}
}
