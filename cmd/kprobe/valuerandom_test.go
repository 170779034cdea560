package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestRandomValues compares the values of random programs with what they print of
// themselves. KPROBE_TEST_SEEDS is how many programs of each compiler and flags
// are made; with KPROBE_TEST_SEED the first has another number.
func TestRandomValues(t *testing.T) {
	seeds, first := 1, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("KPROBE_TEST_SEEDS")); err == nil {
		seeds = n
	}
	if n, err := strconv.ParseUint(os.Getenv("KPROBE_TEST_SEED"), 10, 64); err == nil {
		first = n
	}
	for k, c := range []struct {
		lang  string
		build string
	}{
		{"c", "gcc -g -O0"}, {"c", "gcc -g -O2"}, {"c", "clang -g -O0"}, {"c", "clang -g -O1 -gdwarf-4"},
		{"c", "gcc -g -O3 -gdwarf-4"}, {"c", "gcc -g -O1 -gsplit-dwarf"},
		{"cc", "g++ -g -O0"}, {"cc", "g++ -g -O2 -fdebug-types-section"}, {"cc", "clang++ -g -O2"},
		{"go", "go build"}, {"go", "go build -gcflags=-N\\ -l"},
		{"rust", "rustc -g"},
	} {
		if seeds == 1 && k%3 == 1 {
			continue // the short form
		}
		for seed := first; seed < first+uint64(seeds); seed++ {
			t.Run(fmt.Sprintf("%s seed %d", c.build, seed), func(t *testing.T) {
				dir := t.TempDir()
				words := strings.Fields(strings.ReplaceAll(c.build, "\\ ", "\x00"))
				for i := range words {
					words[i] = strings.ReplaceAll(words[i], "\x00", " ")
				}
				source, defs := generate(c.lang, seed+1000*uint64(k), 8)
				file := filepath.Join(dir, "generated."+map[string]string{"c": "c", "cc": "cc", "go": "go", "rust": "rs"}[c.lang])
				prog := filepath.Join(dir, "generated")
				for i := range defs {
					defs[i] = strings.ReplaceAll(defs[i], "PROGRAM", "generated")
				}
				if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
					t.Fatal(err)
				}
				build := exec.Command(fixture.NeedTool(t, words[0]), append(words[1:], "-o", prog, file)...)
				build.Dir = dir
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s\n%s", err, out, source)
				}
				compareValues(t, defs, []string{prog})
				if t.Failed() {
					t.Log(source)
				}
			})
		}
	}
}
