package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestInlineThreadLocals: of a thread-local variable that the program and a library each have,
// both use the program's, however dynamic linking tells them; a library that takes its own
// (-Bsymbolic) has its own.
func TestInlineThreadLocals(t *testing.T) {
	from := filepath.Join(fixture.Root(), "testdata")
	for _, build := range []string{"g++ -g", "g++ -g -O2 -ftls-model=initial-exec", "clang++ -gdwarf-4 -O1", "g++ -g -O1 -mtls-dialect=gnu2", "g++ -g -Wl,-Bsymbolic"} {
		t.Run(build, func(t *testing.T) {
			dir := t.TempDir()
			words := append(strings.Fields(build), "-std=c++17", "-pthread")
			run := func(args ...string) { compileIn(t, dir, words, args...) }
			run("-shared", "-fPIC", "-o", "libtls.so", filepath.Join(from, "tls_inline_library.cc"))
			run("-o", "prog", filepath.Join(from, "tls_inline_program.cc"), "-L.", "-ltls", "-Wl,-rpath,$ORIGIN")
			out := filepath.Join(dir, "hits")
			cmd := exec.Command(program(t), "trace", "-q", "-o", out, "p:use libtls:use a=Each::counter b=shared c=own", "--", filepath.Join(dir, "prog"))
			cmd.Stderr = os.Stderr
			own, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			hits, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			said := regexp.MustCompile(`(?m)^use (\S+) (\S+)$`).FindAllStringSubmatch(string(own), -1)
			have := regexp.MustCompile(` a=(\S+) b=(\S+) c=(\S+)`).FindAllStringSubmatch(string(hits), -1)
			if len(said) != 4 || len(have) != 4 {
				t.Fatalf("%d calls, %d hits:\n%s", len(said), len(have), hits)
			}
			symbolic := strings.Contains(build, "-Bsymbolic")
			for i, h := range have {
				a, b := said[i][1], said[i][2]
				if symbolic {
					a, b = []string{"5", "6", "5", "7"}[i], []string{"7", "17", "7", "27"}[i]
				}
				if c := []string{"50", "51", "50", "52"}[i]; h[1] != a || h[2] != b || h[3] != c {
					t.Errorf("hit %d: %s, not %s %s %s", i, h[0], a, b, c)
				}
			}
		})
	}
}
