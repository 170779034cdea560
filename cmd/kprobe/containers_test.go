package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// Programs fill containers at random, print each as kprobe does, and call a function
// see_NAME with it.
func TestContainers(t *testing.T) {
	for _, c := range []struct {
		source string
		flags  []string
		seeds  []string
	}{
		{"containers.cc", []string{"-std=c++20", "-g", "-O1"}, []string{"1", "2", "3"}},
		{"containers.cc", []string{"-std=c++20", "-g", "-O0", "-gdwarf-4", "-D_GLIBCXX_USE_CXX11_ABI=0"}, []string{"4", "5"}},
		{"containers.cc", []string{"-std=c++20", "-g", "-O0", "-stdlib=libc++"}, []string{"6", "7", "8"}},
		{"containers.rs", []string{"-g", "-O"}, []string{"1", "2", "3"}},
		{"containers.rs", []string{"-g"}, []string{"4"}},
		{"containers.go", nil, []string{"1", "2", "3"}},
		{"containers.go", []string{"-gcflags=all=-N -l"}, []string{"4"}},
	} {
		t.Run(c.source+" "+strings.Join(c.flags, " "), func(t *testing.T) {
			t.Parallel()
			prog := fixture.Build(t, c.source, c.flags...)
			for _, seed := range c.seeds {
				compareContainers(t, prog, seed)
			}
		})
	}
}

var (
	seeFunction = regexp.MustCompile(`(?m) [Tt] ((?:main\.)?see_(\w+))$`)
	seenLine    = regexp.MustCompile(`(?m)\d: (\w+): .*?\+0x[0-9a-f]+/0x[0-9a-f]+\) (x=.*)$`)
)

// seen traces every function see_NAME of a program and gives what the program and
// kprobe say, line by line.
func seen(t *testing.T, prog string, options []string, args ...string) (want, have []string) {
	t.Helper()
	names, err := exec.Command(fixture.NeedTool(t, "nm"), prog).Output()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "hits")
	argv := append([]string{"trace", "-q", "-o", out}, options...)
	for _, m := range seeFunction.FindAllSubmatch(names, -1) {
		what := " x"
		if name := string(m[2]); strings.HasSuffix(prog, "containers") && (name == "person" || name == "tup") {
			what = " x=*x" // a reference to a structure of the program's own
		}
		argv = append(argv, "p:"+string(m[2])+" "+string(m[1])+what)
	}
	cmd := exec.Command(program(t), append(append(argv, "--", prog), args...)...)
	var own, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &own, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range seenLine.FindAllSubmatch(text, -1) {
		have = append(have, sortedMap(string(m[1])+" "+string(m[2])))
	}
	for line := range strings.Lines(own.String()) {
		want = append(want, sortedMap(strings.TrimSuffix(line, "\n")))
	}
	return want, have
}

// sortedMap sorts the elements of Go's maps, which have no order.
func sortedMap(line string) string {
	name, value, _ := strings.Cut(line, " x={[")
	if !strings.HasPrefix(name, "map") && name != "set" || !strings.HasSuffix(value, "}") {
		return line
	}
	list := strings.Split(strings.TrimSuffix(value, "}"), ",[")
	slices.Sort(list)
	return name + " x={[" + strings.Join(list, ",[") + "}"
}

func compareContainers(t *testing.T, prog, seed string) {
	t.Helper()
	want, have := seen(t, prog, nil, seed)
	if len(have) != len(want) || len(want) == 0 {
		t.Fatalf("seed %s: %d hits, the program tells of %d", seed, len(have), len(want))
	}
	bad := 0
	for i := range want {
		if have[i] != want[i] && bad < 10 {
			bad++
			t.Errorf("seed %s:\nhave %s\nwant %s", seed, have[i], want[i])
		}
	}
	t.Logf("seed %s: %d values", seed, len(want))
}
