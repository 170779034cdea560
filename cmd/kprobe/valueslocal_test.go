package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestLocalFunctions: GCC passes everything to a function that only its own file calls,
// whether or not debug information has a place for it. A copy has parameters of its own, and
// without symbols nothing tells it from the function.
func TestLocalFunctions(t *testing.T) {
	t.Setenv("CC", fixture.NeedTool(t, "gcc"))
	for _, flags := range []string{"-g -O2", "-g -O1 -gdwarf-4", "-g -O2 -flto"} {
		prog := fixture.Build(t, "values_local.c", strings.Fields(flags)...)
		compareValues(t, definitions(t, filepath.Join(fixture.Root(), "testdata", "values_local.c"), true), []string{prog})
	}
	prog := fixture.Build(t, "values_local.c", "-g", "-O2")
	bare := filepath.Join(t.TempDir(), "bare")
	if out, err := exec.Command(fixture.NeedTool(t, "strip"), "--strip-all", "--keep-section=.debug_*", "-o", bare, prog).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct{ prog, def, want string }{
		{prog, "p half* t", "optimized out"}, {bare, "p half t", "optimized out"},
		{prog, "r half* $retval", "is a copy"}, {bare, "r half $retval", "has no symbol, so it may be a copy"},
		{prog, "r spread $retval", ""}, {bare, "p spread k", ""},
	} {
		out, err := exec.Command(program(t), "trace", "-q", c.def, "--", c.prog).CombinedOutput()
		if (c.want == "") != (err == nil) || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v\n%s", c.def, err, out)
		}
	}
}

// TestGivenAddress: a result in memory is at the address that the function was given, also where
// no call reads what the function returns. At the entry it isn't there.
func TestGivenAddress(t *testing.T) {
	t.Setenv("CC", fixture.NeedTool(t, "clang"))
	for _, flags := range []string{"-g -O2", "-gdwarf-4 -O1"} {
		prog := fixture.Build(t, "values_local.c", strings.Fields(flags)...)
		for _, c := range []struct{ def, want string }{
			{"r made r=$retval b=$retval.b", "r={a=1,b=3,c=7} b=3\n"},
			{"r made b=$retval.b@entry", "there is no result yet at the entry"},
			{"p made b=$retval.b", "use a return probe"},
		} {
			out, err := exec.Command(program(t), "trace", "-q", c.def, "--", prog).CombinedOutput()
			if strings.HasPrefix(c.want, "r=") != (err == nil) || !strings.Contains(string(out), c.want) {
				t.Errorf("%s %s: %v\n%s", flags, c.def, err, out)
			}
		}
	}
}
