package main

import (
	"os/exec"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestTakenApart: a line's place is in the part of its function that is entered, though
// one that rarely runs lies before it; what a copy of a function returns, whose calls may
// not use it, is not told.
func TestTakenApart(t *testing.T) {
	t.Setenv("CC", fixture.NeedTool(t, "gcc"))
	prog := fixture.Build(t, "values_parts.c", "-g", "-O2")
	out, err := exec.Command(program(t), "trace", "-q", "p:line values_parts.c:18 i", "--", prog).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "i=2") {
		t.Errorf("%v\n%s", err, out)
	}
	for def, want := range map[string]string{"r quiet $retval": "may return nothing", "r quiet %ax": "", "r divided $retval": "", "p quiet n": ""} {
		out, err := exec.Command(program(t), "trace", "-q", def, "--", prog).CombinedOutput()
		if (want == "") != (err == nil) || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", def, err, out)
		}
	}
}
