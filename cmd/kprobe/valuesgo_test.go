package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestGoHeap holds Go's variables against what the program says of them: those that
// have escaped, that closures have, results on the stack, and what Go keeps elsewhere.
// In optimized code a variable may have no value, but never another one.
func TestGoHeap(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(fixture.Root(), "testdata/go_heap/go_heap.go"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(mark string) string {
		for i, l := range strings.Split(string(text), "\n") {
			if strings.HasSuffix(l, "// "+mark) {
				return fmt.Sprintf("go_heap.go:%d", i+1)
			}
		}
		t.Fatalf("no line %s", mark)
		return ""
	}
	for _, flags := range [][]string{nil, {"-gcflags=-N -l"}} {
		prog := fixture.Build(t, "go_heap/go_heap.go", flags...)
		for _, c := range []struct {
			def string
			may bool // optimized code may have no value
		}{
			{"p:inner " + at("inner") + " x", true},
			{"p:entered main.moved x w.L s", false},
			{"p:moved " + at("moved") + " x w.C w.L s", true},
			{"p:captured " + at("captured") + " x", false},
			{"r:results main.results k r s far err", false}, // with a value of the entry: by breakpoints
			{"r:alone main.results $retval $retval2 $retval3", false},
			{"p:copied " + at("copied") + " p.N k", true},
			{"p:far main.far keys values both elements=1", false},
			{"p:anything main.anything v list", false},
			{"p:empty main.empty none zero p list c", false},
			{"p:pieces main.pieces $vars", false},
			{"r:bare main.bare x=$retval", false},
			{"p:early " + at("early") + " $vars", false}, // later is not declared yet
			{"p:late " + at("late") + " n later", true},
			{"p:sums " + at("sums") + " $vars", true},
			{"p:channels main.channels none c closed list", false},
			{"p:instead main.instead n a b", false},
			{"r:deferred main.deferred m out last err", false},
			{"p:shorter " + at("shorter") + " list", false},
		} {
			if c.may && flags == nil && strings.HasSuffix(c.def, "$vars") {
				continue // it is left out there, without an error
			}
			event := regexp.MustCompile(`:(\w+)`).FindStringSubmatch(c.def)[1]
			t.Run(strings.Join(flags, "")+event, func(t *testing.T) {
				t.Parallel()
				out := filepath.Join(t.TempDir(), "hits")
				cmd := exec.Command(program(t), "trace", "-q", "-o", out, c.def, "--", prog)
				var own, errs bytes.Buffer
				cmd.Stdout, cmd.Stderr = &own, &errs
				if err := cmd.Run(); err != nil {
					if c.may && flags == nil && regexp.MustCompile(`optimized out|not known`).MatchString(errs.String()) {
						return
					}
					t.Fatalf("%v: %s", err, errs.String())
				}
				lines, err := os.ReadFile(out)
				if err != nil {
					t.Fatal(err)
				}
				var have []string
				for _, m := range regexp.MustCompile(`(?m): (\w+): \(.*?\) (.*)$`).FindAllSubmatch(lines, -1) {
					have = append(have, string(m[1])+" "+goShortened(string(m[2])))
				}
				var want []string
				for line := range strings.Lines(own.String()) {
					if strings.HasPrefix(line, event+" ") {
						want = append(want, strings.TrimSpace(line))
					}
				}
				if len(want) == 0 || strings.Join(have, "\n") != strings.Join(want, "\n") {
					t.Errorf("kprobe:\n%s\nthe program:\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

// goShortened leaves the first member of long structures and arrays.
func goShortened(s string) string {
	s = regexp.MustCompile(`\{A=(\d+),[^}]*\}`).ReplaceAllString(s, "{A=$1,...}")
	s = regexp.MustCompile(`\{(\d+),(?:0,)+\.\.\.\}`).ReplaceAllString(s, "{$1,...}")
	return regexp.MustCompile(`(\{\{A=\d+,\.\.\.\})[^\]]*?\}\} both`).ReplaceAllString(s, "$1}} both")
}

// TestJSONCut: what of an array was not recorded is told in JSON too.
func TestJSONCut(t *testing.T) {
	prog := fixture.Build(t, "go_heap/go_heap.go")
	out, err := exec.Command(program(t), "trace", "-q", "--json", "p:longer main.longer l", "--", prog).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out, []byte(`"cut":["l"]`)) {
		t.Errorf("no word of the elements that are missing: %s", out)
	}
}

// TestGoInlinedLiteral: what a function literal captured is nowhere where it is inlined
// into another function than its own, and a variable there of the same name is none of it.
func TestGoInlinedLiteral(t *testing.T) {
	prog := fixture.Build(t, "values_seen.go", "-gcflags=-N")
	text, err := os.ReadFile(filepath.Join(fixture.Root(), "testdata/values_seen.go"))
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), "// ELSEWHERE")
	place := fmt.Sprintf("values_seen.go:%d", strings.Count(before, "\n")+1)
	for name, want := range map[string]string{"x": "no variable x in", "y": "no variable y in", "k": " k=13\n"} {
		out, _ := exec.Command(program(t), "trace", "-q", "p "+place+" "+name, "--", prog).CombinedOutput()
		if !strings.Contains(string(out), want) || strings.Contains(string(out), " "+name+"=") != (name == "k") {
			t.Errorf("%s: %s", name, out)
		}
	}
}
