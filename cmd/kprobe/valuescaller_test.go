package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestCallersValues: what a parameter was at the entry is told behind it where the
// caller still has it, as far as the call is the one that debug information
// describes; of another call it is a fault, never a wrong value.
func TestCallersValues(t *testing.T) {
	source := filepath.Join(fixture.Root(), "testdata", "values_caller.c")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	line := "values_caller.c:" + lineOf(t, string(text), "// GONE")
	for _, build := range []string{"gcc -g -O2", "gcc -g -O1 -gdwarf-4", "gcc -g -O2 -gsplit-dwarf", "gcc -g -O2 -fomit-frame-pointer -fPIE -pie", "gcc -g -O2 -fno-omit-frame-pointer", "clang -g -O2"} {
		t.Run(build, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			compileIn(t, dir, strings.Fields(build), "-o", filepath.Join(dir, "prog"), source)
			for _, o := range []string{"-q", "--no-optimize"} {
				out := filepath.Join(dir, "hits")
				cmd := exec.Command(program(t), "trace", "-q", o, "-o", out, "p:gone "+line+" $params", "--", filepath.Join(dir, "prog"))
				own, err := cmd.Output()
				if err != nil {
					t.Fatal(err)
				}
				hits, err := os.ReadFile(out)
				if err != nil {
					t.Fatal(err)
				}
				want := regexp.MustCompile(`work (.*)`).FindAllStringSubmatch(string(own), -1)
				have := regexp.MustCompile(`gone: \(.*?\) (.*)`).FindAllStringSubmatch(string(hits), -1)
				if len(want) != 4 || len(have) != 4 {
					t.Fatalf("%s\n%s", own, hits)
				}
				told := 0
				for i := range want {
					w, h := strings.Fields(want[i][1]), strings.Fields(strings.ReplaceAll(have[i][1], "<optimized out>", "-"))
					for k := range w {
						name, value, _ := strings.Cut(h[k], "=")
						switch {
						case value == "-" || value == "(fault)" && i == 2:
						case i == 2 && name != "":
							t.Errorf("call %d, that debug information doesn't describe: %s", i, h[k])
						case !same(h[k], w[k]):
							t.Errorf("call %d: %s, the program says %s", i, h[k], w[k])
						default:
							told++
						}
					}
				}
				if told < 6 {
					t.Errorf("%d values were told:\n%s%s", told, own, hits)
				}
			}
		})
	}
}

// same reports one value, where a text that is pointed to has its address before it.
func same(have, want string) bool {
	name, value, _ := strings.Cut(want, "=")
	return have == want || strings.HasPrefix(have, name+"=") && strings.HasSuffix(have, value)
}

func lineOf(t *testing.T, text, mark string) string {
	t.Helper()
	before, _, ok := strings.Cut(text, mark)
	if !ok {
		t.Fatalf("no %s", mark)
	}
	return strconv.Itoa(strings.Count(before, "\n") + 1)
}
