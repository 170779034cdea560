package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"kprobe/internal/fixture"
)

const togetherSource = `#include <map>
#include <cstdio>
std::map<int, int> all{{1, 2}, {3, 4}};
__attribute__((noinline)) std::map<int, int> &work(std::map<int, int> &m, long n) { printf("%d %ld\n", (int)m.size(), n); return all; }
int main() { for (int i = 0; i < 5; i++) work(all, i); }
`

// TestTracersAndJumpsTogether: a probe that only the tracer can record has all of its
// hits where another that could be a jump stands at the same place.
func TestTracersAndJumpsTogether(t *testing.T) {
	src := filepath.Join(t.TempDir(), "together.cc")
	if err := os.WriteFile(src, []byte(togetherSource), 0o600); err != nil {
		t.Fatal(err)
	}
	prog := fixture.BuildFile(t, src, "-g", "-O1")
	for _, defs := range [][]string{
		{"p:e1 work m", "p:e2 work n"},
		{"p:e1 work n", "p:e2 work m"},
		{"r:e1 work r=$retval", "p:e2 work n"},
		{"r:e1 work r=$retval", "r:e2 work"},
		{"r:e1 work", "r:e2 work r=$retval", "p:e3 work", "p:e4 work m"},
		{"r:e1 work r=$retval", "p:e2 work+4"},
	} {
		out := filepath.Join(t.TempDir(), "hits")
		if text, err := exec.Command(program(t), append(append([]string{"trace", "-q", "-o", out}, defs...), "--", prog)...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", defs, err, text)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		hits := map[string]int{}
		for _, m := range regexp.MustCompile(`: (e\d): `).FindAllSubmatch(text, -1) {
			hits[string(m[1])]++
		}
		for _, d := range defs {
			if n := hits[eventOf(d)]; n != 5 {
				t.Errorf("%q: %s has %d hits, want 5", defs, d, n)
			}
		}
	}
}
