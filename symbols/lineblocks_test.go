package symbols

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

const blocksSource = `#include <stdio.h>
__attribute__((noinline)) int other(int n) { __asm__ volatile("" : "+r"(n)); return n; }
static inline __attribute__((always_inline)) int twice(int v) { int w = v + 1; if (w & 1) { int u = w * 2; printf("%d\n", u); } return w; }
__attribute__((noinline)) int nested(int n) { int a = n; { int b = a * 3; printf("%d\n", b); { int c = b * 5; printf("%d\n", c); } } return a; }
__attribute__((noinline)) int loops(int n) {
	int sum = 0;
	for (int i = 0; i < n; i++) { int d = i * i; sum += d; printf("%d\n", sum); }
	for (int i = 0; i < n; i++)
		sum += twice(i) + twice(n);
	if (n > 3) { int k = other(4); sum += k; printf("%d\n", k); } else { int m = other(5); sum -= m; printf("%d\n", m); }
	return sum;
}
int main(int c, char **v) {
	int s = nested(c) + loops(c); { int t = s; printf("%d\n", t); }
	return 0;
}
`

// gdbPlace is a place in gdb's list of breakpoints, of one by itself or of several.
var gdbPlace = regexp.MustCompile(`(?m)^(\d+)(?:\.\d+)?\s+(?:breakpoint\s+keep\s+)?y\s+(0x[0-9a-f]+)`)

// TestLineBlocks: a line has a place in each function, inlined call and block that has code of
// it, as in gdb. In a function's prologue gdb takes the prologue's end.
func TestLineBlocks(t *testing.T) {
	gdb := fixture.NeedTool(t, "gdb")
	src := filepath.Join(t.TempDir(), "blocks.c")
	if err := os.WriteFile(src, []byte(blocksSource), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(blocksSource, "\n")
	for _, cc := range []string{"gcc", "clang"} {
		t.Setenv("CC", fixture.NeedTool(t, cc))
		for _, o := range []string{"-O0", "-O1", "-O2"} {
			prog := fixture.BuildFile(t, src, "-g", "-no-pie", o)
			s, err := OpenFileSpace(prog)
			if err != nil {
				t.Fatal(err)
			}
			command, number := []string{"-nx", "-batch"}, map[int]int{} // the line of each of gdb's breakpoints
			for line := 1; line <= lines; line++ {
				if _, err := s.Resolve(Place{Kind: PlaceLine, File: "blocks.c", Line: line}); err == nil {
					command = append(command, "-ex", "break blocks.c:"+strconv.Itoa(line))
					number[len(number)+1] = line
				}
			}
			out, err := exec.Command(gdb, append(command, "-ex", "info breakpoints", prog)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			gdbs := map[int][]Addr{}
			for _, m := range gdbPlace.FindAllStringSubmatch(string(out), -1) {
				n, _ := strconv.Atoi(m[1])
				at, _ := strconv.ParseUint(m[2], 0, 64)
				gdbs[number[n]] = append(gdbs[number[n]], Addr(at))
			}
			several := 0
			for _, line := range number {
				sites, _ := s.Resolve(Place{Kind: PlaceLine, File: "blocks.c", Line: line})
				var have []Addr
				atStart := 0
				for _, site := range sites {
					if site.Offset == 0 {
						atStart++ // gdb's is behind the prologue
					} else {
						have = append(have, site.Addr)
					}
				}
				want := gdbs[line]
				if len(want) > 1 {
					several++
				}
				missing := slices.ContainsFunc(have, func(a Addr) bool { return !slices.Contains(want, a) })
				if missing || len(want) < len(have) || len(want) > len(have)+atStart {
					t.Errorf("%s %s line %d: %v and %d starts of functions; gdb has %v", cc, o, line, have, atStart, want)
				}
			}
			if several < 1 {
				t.Errorf("%s %s: no line has several places", cc, o)
			}
		}
	}
}
