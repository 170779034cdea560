package probe

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

const inlinedProgram = `
volatile int sink;
int mix(int a, int b) { int c = a * 3; sink = c + b; return c ^ b; }
__attribute__((noinline)) int one(int n) { int r = mix(n, 1); sink++; return r + 5; }
__attribute__((noinline)) int two(int n) { sink--; return mix(n + 7, n); }
int (*volatile pointer)(int, int) = mix;
int main(void)
{
	int s = 0;
	for (int i = 0; i < 3; i++)
		s += one(i) + two(i) + pointer(i, 2);
	return s == 12345;
}
`

// A function that is inlined too is one event with a place for each instance,
// whose variables are the instance's; returns are those of its own code.
func TestInlinedInstances(t *testing.T) {
	src := filepath.Join(t.TempDir(), "inlined.c")
	if err := os.WriteFile(src, []byte(inlinedProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	prog := fixture.BuildFile(t, src, "-g", "-O2")
	space, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	// Instances are looked for when a definition is armed, not when it is checked.
	for def, want := range map[string]int{"p mix a b": 1, "p mix a=%ax b=$arg2": 1, "r mix": 1} {
		if c, err := Check(space, parseDefs(t, def)[0]); err != nil || len(c.Sites) != want || c.Module == nil {
			t.Errorf("%s: %+v, %v, want %d places", def, c, err, want)
		}
	}
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sink := &collector{}
		var warned []string
		o.Log = logTo(slog.LevelWarn, func(text string) { warned = append(warned, text) })
		sum := traceCommand(t, o, sink, []string{prog}, "p:e mix a b", "r:x mix v=$retval:s32", "p:first mix a=%ax b=$arg2:s32")
		want := []string{"e a=0 b=1", "e a=7 b=0", "e a=0 b=2", "e a=1 b=1", "e a=8 b=1", "e a=1 b=2", "e a=2 b=1", "e a=9 b=2", "e a=2 b=2"}
		var got []string
		returns := 0
		for _, l := range sink.all() {
			switch {
			case strings.HasPrefix(l, "e "):
				got = append(got, l)
			case strings.HasPrefix(l, "x "):
				returns++
			}
		}
		if !slices.Equal(got, want) || returns != 3 {
			t.Errorf("%q and %d returns, want %q and 3", got, returns, want)
		}
		for _, st := range sum.Stats {
			if want := map[string]uint64{"e": 9, "x": 3, "first": 6}[st.Event.Name]; st.Hits != want {
				t.Errorf("%+v", st)
			}
		}
		if len(warned) == 0 {
			t.Error("an instance without second argument was left out silently")
		}
	}
}

// A glob over lines is one event; each line that runs is a hit of it, once a
// pass where it has one place.
func TestLineGlob(t *testing.T) {
	src := filepath.Join(t.TempDir(), "lines.c")
	if err := os.WriteFile(src, []byte(inlinedProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	prog := fixture.BuildFile(t, src, "-g", "-O0")
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sum := traceCommand(t, o, &collector{}, []string{prog}, "p:all lines.c:*", "p:fns lines.c:[345]", "p:loop lines.c:1?")
		hits := map[string]uint64{}
		for _, st := range sum.Stats {
			hits[st.Event.Name] += st.Hits
		}
		// Three passes through mix (3 calls), one, two and line 11; of main's other
		// lines (7, 9, 10, 12, 13) the first code runs once.
		if hits["fns"] != 3*(3+1+1) || hits["loop"] != 3+3 || hits["all"] != 3*(3+1+1+1)+5 {
			t.Errorf("%v of %+v", hits, sum)
		}
	}
}
