package main

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestFramesEnd: at the end of a function, which gives its frame up, what the frame held
// prints as it was, or is an error.
func TestFramesEnd(t *testing.T) {
	want := map[string][]string{"large": {"big[3]=103", "other.at[3]=1003"}, "small": {"few[3]=103"}, "sized": {"big[3]=103"}}
	for _, build := range []string{
		"gcc -O0", "gcc -O2", "gcc -O2 -fno-omit-frame-pointer", "gcc -O0 -fomit-frame-pointer",
		"clang -O0", "clang -O1", "clang -O2 -fno-omit-frame-pointer", "clang -O0 -fomit-frame-pointer",
	} {
		t.Run(build, func(t *testing.T) {
			words := strings.Fields(build)
			t.Setenv("CC", fixture.NeedTool(t, words[0]))
			prog := fixture.Build(t, "values_ends.c", append([]string{"-g"}, words[1:]...)...)
			equal, refused := 0, 0
			for fn, values := range want {
				at := afterLastCall(t, prog, fn)
				if len(at) < 2 {
					t.Fatalf("%s has %d instructions after its last call", fn, len(at))
				}
				for _, off := range at {
					for _, v := range values {
						name, value, _ := strings.Cut(v, "=")
						out, err := exec.Command(program(t), "trace", "-q", "p:end "+fn+"+"+strconv.Itoa(off)+" v="+name, "--", prog).CombinedOutput()
						switch {
						case err == nil && strings.Contains(string(out), " v="+value+"\n"):
							equal++
						case errors.As(err, new(*exec.ExitError)) && strings.Contains(string(out), "the function's frame does not exist yet, or no longer"):
							refused++
						default:
							t.Errorf("%s at %s+%d: %v\n%s", v, fn, off, err, out)
						}
					}
				}
			}
			if equal == 0 || refused == 0 || refused > equal {
				t.Errorf("%d values are equal, %d refused", equal, refused)
			}
		})
	}
}

// afterLastCall are the distances from a function's start of what runs after its last call.
func afterLastCall(t *testing.T, prog, fn string) (at []int) {
	t.Helper()
	out, err := exec.Command(program(t), "show", "--json", "-x", prog, fn).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var i struct {
			Off int
			Asm string
		}
		if err := json.Unmarshal([]byte(line), &i); err != nil {
			t.Fatal(err)
		}
		if at = append(at, i.Off); strings.HasPrefix(i.Asm, "call ") {
			at = nil
		}
	}
	return at
}
