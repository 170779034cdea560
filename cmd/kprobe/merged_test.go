package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/tracee"
)

// TestWatchNames: a watchpoint, which is of no function, says so of names that it
// hasn't; a variable without debug information isn't another file's of its name.
func TestWatchNames(t *testing.T) {
	prog := fixture.Build(t, "values_watch.c", "-g", "-O1")
	stripped := fixture.Build(t, "values_watch.c", "-O1")
	for _, c := range []struct{ prog, def, want string }{
		{prog, "w:x w@watched:4 i", "no variable i in the debug information of"},
		{prog, "w:x w@watched:4 i", "outside of functions"},
		{prog, "w:x w@watched:4 state.b", ""},
		{stripped, "w:x w@watched:4 state.b", "no debug information"},
	} {
		out, err := exec.Command(program(t), "trace", "-q", "-o", os.DevNull, c.def, "--", c.prog).CombinedOutput()
		if c.want == "" && tracee.CheckDebugRegisters() != nil {
			c.want = "no debug register is to be had here"
		}
		if (c.want == "") != (err == nil) || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v\n%s", c.def, err, out)
		}
	}
}

// TestMergedFunctions: of code that is several functions' no value is told by the types
// of one of them, and an alias of a C function hides none.
func TestMergedFunctions(t *testing.T) {
	prog := fixture.Build(t, "merged.cc", "-g", "-O2", "-fno-ipa-icf")
	const both = "are one piece of code"
	for _, c := range []struct{ def, want string }{
		{"geta *p", both}, {"getb q->u", both}, {"geta $params", both}, {"geta $arg1 $arg2:s32", ""}, {"r geta $retval", ""},
		{"same_one x", ""}, {"same_two x", ""}, {"main $vars", ""}, {"get<A> *t", ""},
	} {
		out, err := exec.Command(program(t), "trace", "-q", "-o", os.DevNull, c.def, "--", prog).CombinedOutput()
		if c.want == "" && err != nil {
			t.Errorf("%s: %v\n%s", c.def, err, out)
		}
		if c.want != "" && (err == nil || !strings.Contains(string(out), c.want) || !strings.Contains(string(out), "geta(A*, int)") || !strings.Contains(string(out), "getb(B*, int)")) {
			t.Errorf("%s: %v\n%s", c.def, err, out)
		}
	}
}

// TestMergedWithoutCode: of all but one of the functions that GCC merges debug
// information has no code, and they are as merged.
func TestMergedWithoutCode(t *testing.T) {
	t.Setenv("CC", fixture.NeedTool(t, "gcc"))
	prog := fixture.Build(t, "merged.c", "-g", "-O2", "-flto")
	for _, c := range []struct{ def, want string }{
		{"geta p", "are one piece of code"}, {"getb q", "are one piece of code"}, {"getb %di", ""}, {"same q", ""}, {"again q", ""},
	} {
		out, err := exec.Command(program(t), "trace", "-q", "-o", os.DevNull, c.def, "--", prog).CombinedOutput()
		if (c.want == "") != (err == nil) || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v\n%s", c.def, err, out)
		}
	}
}

// TestMergedRust: Rust has no aliases, so a second name of the same code is another
// function, also where it isn't mangled.
func TestMergedRust(t *testing.T) {
	prog := fixture.Build(t, "merged.rs", "-g", "-O")
	for _, c := range []struct{ def, want string }{
		{"merged_unsigned x", "are one piece of code"}, {"merged_signed x", "are one piece of code"},
		{"merged_unsigned %di:u8", ""}, {"alone x", ""},
	} {
		out, err := exec.Command(program(t), "trace", "-q", "-o", os.DevNull, c.def, "--", prog).CombinedOutput()
		if (c.want == "") != (err == nil) || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v\n%s", c.def, err, out)
		}
	}
}
