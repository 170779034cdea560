package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestLinkedVariables: a variable that the program and a library each have is the one that
// both use, however the place of the probe names it; what LLVM says that a class's variable
// begins with isn't its value.
func TestLinkedVariables(t *testing.T) {
	from := filepath.Join(fixture.Root(), "testdata")
	for _, build := range []string{"g++ -g", "g++ -g -O2 -no-pie", "clang++ -g -O1", "clang++ -gdwarf-4 -no-pie -Wl,-z,now", "g++ -gdwarf-4 -fdebug-types-section -O1"} {
		t.Run(build, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			words := append(strings.Fields(build), "-std=c++17")
			run := func(args ...string) { compileIn(t, dir, words, args...) }
			all := words
			words = slices.DeleteFunc(slices.Clone(all), func(w string) bool { return w == "-no-pie" })
			run("-shared", "-fPIC", "-o", "liblinked.so", filepath.Join(from, "linked_library.cc"))
			words = all
			run("-o", "prog", filepath.Join(from, "linked_other.cc"), filepath.Join(from, "linked_program.cc"), "-L.", "-llinked", "-Wl,-rpath,$ORIGIN")
			out := filepath.Join(dir, "hits")
			defs := []string{"p:use liblinked:use a=copied b=Shared::counter d=numbers[2] e=own f=hidden g=each h=Shared::fixed",
				"p:of Shared::of a=copied b=counter d=numbers[2] h=fixed i=this->counter",
				"p:else elsewhere a=copied d=numbers[2]", "p:at liblinked:use a=@copied:s32 d=@numbers+8:s32 b=@liblinked:_ZN6Shared7counterE:s32"}
			values := 51
			if strings.HasPrefix(build, "clang") { // which doesn't tell what is extern
				text, err := exec.Command(program(t), "trace", "-q", "-o", out, "p:of Shared::of a=copied", "--", filepath.Join(dir, "prog")).CombinedOutput()
				if err == nil || !strings.Contains(string(text), "@copied") {
					t.Errorf("%v: %s", err, text)
				}
				defs[1] = "p:of Shared::of b=counter h=fixed i=this->counter"
				values -= 6
			}
			cmd := exec.Command(program(t), append(append([]string{"trace", "-q", "-o", out}, defs...), "--", filepath.Join(dir, "prog"))...)
			cmd.Stderr = os.Stderr
			own, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			hits, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			counts := map[string]int{}
			for _, m := range regexp.MustCompile(`(\w+): \(.*?\) (.*)`).FindAllStringSubmatch(string(hits), -1) {
				said := regexp.MustCompile(`(?m)^`+strings.Replace(m[1], "at", "use", 1)+` (\S+) (\S+) (\S+) (\S+)$`).FindAllStringSubmatch(string(own), -1)
				k := counts[m[1]]
				counts[m[1]]++
				done := map[string]string{"a": []string{"-1", "-2", "-4"}[k], "d": []string{"-1", "-2", "-4"}[k]}
				if m[1] != "else" {
					done = map[string]string{"a": said[k][1], "b": said[k][2], "i": said[k][2], "d": said[k][4], "h": "7",
						"e": []string{"50", "51", "53"}[k], "f": []string{"9", "10", "12"}[k], "g": []string{"5", "6", "8"}[k]}
				}
				for _, w := range strings.Fields(m[2]) {
					name, value, _ := strings.Cut(w, "=")
					if n++; value != done[name] {
						t.Errorf("%s, hit %d: %s, the program says %s", m[1], k, w, done[name])
					}
				}
			}
			if n != values {
				t.Errorf("%d values of %d:\n%s", n, values, hits)
			}
		})
	}
}

// compileIn runs a compiler, words[0], in a folder.
func compileIn(t *testing.T, dir string, words []string, args ...string) {
	t.Helper()
	cmd := exec.Command(fixture.NeedTool(t, words[0]), append(words[1:len(words):len(words)], args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
