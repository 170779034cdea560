package main

import (
	"bytes"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestGoClosureEntry: at the entry of an optimized closure, what it captured is found, also variables that it changes:
// of those it has the addresses.
func TestGoClosureEntry(t *testing.T) {
	prog := fixture.Build(t, "go_closure/go_closure.go")
	cmd := exec.Command(program(t), "trace", "-q", "p:in main.sum.func1 v total scale label name w.C", "--", prog)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	values := regexp.MustCompile(`v=.* name="\w*"`)
	var have, want []string
	var wides string
	for line := range strings.Lines(string(out)) {
		if told := strings.TrimSpace(values.FindString(line)); strings.Contains(line, " in: (") {
			have = append(have, told)
			wides += line[strings.LastIndex(line, " "):]
		} else if told != "" {
			want = append(want, told)
		}
	}
	if len(want) != 4 || strings.Join(have, "\n") != strings.Join(want, "\n") {
		t.Errorf("kprobe:\n%s\nthe program:\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	if got := strings.Join(strings.Fields(wides), " "); got != "w.C=3 w.C=3 w.C=3 w.C=7" {
		t.Errorf("of what was captured by value: %s", got)
	}
	shown, err := exec.Command(program(t), "show", "-x", prog, "--vars", "main.sum.func1").Output()
	if err != nil || bytes.Contains(shown, []byte("optimized out")) {
		t.Errorf("%v:\n%s", err, shown)
	}
}
