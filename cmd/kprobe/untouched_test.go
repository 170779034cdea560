package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestStoredMembers shows structures in the frame whose members are stored in ways that
// are not seen as stores to them: none is said to be optimized out.
func TestStoredMembers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(fixture.Root(), "testdata/untouched.c"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"kept": "s={a=1,b=22,c=3,d=44}", "by_index": "s={a=43,b=40,c=41,d=42}", "nested": "s={a=2,b=3}",
		"state": "q20=77", "bits": "s={a=0,b=2}", "far_before": "s={a={1000,1001,1002,1003,1004,1005,1006,1007},n=1008}",
		"text": `s={n=3,name="ab"}`, "vector": "s={a=1,b=2,c=3,d=4}", "shared": "s={a=1,b=2,c=3,d=4}",
		"around": "s={a=1,b=2,c=3,d=4}", "seldom": "s={a=3,b=0,c=5,d=6}",
	}
	for _, build := range []string{
		"gcc -O1", "gcc -O2", "gcc -O3", "gcc -Os", "gcc -O2 -mtune=atom", "gcc -O2 -fno-omit-frame-pointer", "clang -O1", "clang -O2", "clang -Os",
	} {
		t.Run(build, func(t *testing.T) {
			words := strings.Fields(build)
			clang := words[0] == "clang"
			var defs []string
			for at, line := range strings.Split(string(text), "\n") {
				if _, name, ok := strings.Cut(line, "; // "); ok && want[name] != "" && !(clang && (name == "nested" || name == "text")) { // LLVM says which bytes of the text are nowhere
					what := " s"
					if name == "state" {
						what = " q20=s.q20"
					}
					defs = append(defs, "p:"+name+" untouched.c:"+strconv.Itoa(at+1)+what)
				}
			}
			got := tracedValues(t, "untouched.c", append(words, "-g", "-w"), defs)
			for _, def := range defs {
				name := strings.TrimPrefix(strings.Fields(def)[0], "p:")
				if !strings.Contains(got[name], want[name]) {
					t.Errorf("%s: %q, want %s", name, got[name], want[name])
				}
			}
		})
	}
	t.Run("bindings", func(t *testing.T) {
		got := tracedValues(t, "untouched.cc", []string{"g++", "-O2", "-g", "-std=c++17"}, []string{"p:bind untouched.cc:21 x y"})
		if want := "x={a=1,b=2,c=3,d=4} y={a=11,b=12,c=13,d=14}"; got["bind"] != want {
			t.Errorf("%q, want %s", got["bind"], want)
		}
	})
}

var tracedLine = regexp.MustCompile(`: (\w+): \([^)]*\) (.*)`)

// tracedValues builds a program and returns what the last hit of each event shows.
func tracedValues(t *testing.T, file string, command, defs []string) map[string]string {
	t.Helper()
	prog := filepath.Join(t.TempDir(), "stored")
	build := exec.Command(fixture.NeedTool(t, command[0]), append(command[1:], "-o", prog, filepath.Join(fixture.Root(), "testdata", file))...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var errs bytes.Buffer
	trace := exec.Command(program(t), append(append([]string{"trace", "-q"}, defs...), "--", prog)...)
	trace.Stderr = &errs
	out, err := trace.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	got := map[string]string{}
	for _, m := range tracedLine.FindAllStringSubmatch(string(out), -1) {
		got[m[1]] = m[2]
	}
	return got
}
