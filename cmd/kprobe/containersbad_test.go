package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// badShown is what may be printed of a corrupted container, by its event: an error, or
// what its words still lead to.
var badShown = map[string]*regexp.Regexp{
	"text":  regexp.MustCompile(`^("a.*|""|\(fault\)|\(invalid\))$`),
	"ints":  regexp.MustCompile(`^(\{1,2,3[-0-9,]*(\.\.\.)?\}|\{\}|\(fault\)|\(invalid\))$`),
	"texts": regexp.MustCompile(`^(\{("one"|\(fault\)|\(invalid\)),"two"\}|\{\}|\(fault\)|\(invalid\))$`),
	"tree":  regexp.MustCompile(`^(\{\[1\]=2(,\[3\]=4,\[5\]=6)?\}|\{\}|\(fault\)|\(invalid\))$`),
	"hash":  regexp.MustCompile(`^(\{(\[3\]=4|\[1\]=2)(,\[3\]=4|,\[1\]=2){0,7}(,\.\.\.)?\}|\{\}|\(fault\)|\(invalid\))$`),
	"chain": regexp.MustCompile(`^(\{1,2,3\}|\{1\}|\{(1,){8}\.\.\.\}|\{\}|\(fault\)|\(invalid\))$`),
}

// TestContainersCorrupted: of containers that are moved from, empty, or have a word
// that is wrong, kprobe prints an error or what is there, and ends; nothing harms
// the program.
func TestContainersCorrupted(t *testing.T) {
	for _, level := range []string{"-O0", "-O1"} {
		prog := fixture.Build(t, "containers_bad.cc", "-std=c++20", "-g", level)
		out := filepath.Join(t.TempDir(), "hits")
		argv := []string{"trace", "-q", "-o", out}
		for name := range badShown {
			argv = append(argv, "p:"+name+" see_"+name+" x")
		}
		cmd := exec.Command(program(t), append(argv, "--", prog)...)
		var own, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &own, &errs
		if err := cmd.Run(); err != nil || own.String() != "unharmed\n" {
			t.Fatalf("%s: %v\n%s%s", level, err, own.String(), errs.String())
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		have := map[string][]string{}
		for _, m := range seenLine.FindAllSubmatch(text, -1) {
			name, value := string(m[1]), strings.TrimPrefix(string(m[2]), "x=")
			have[name] = append(have[name], value)
			if !badShown[name].MatchString(value) {
				t.Errorf("%s: %s %d: %.200s", level, name, len(have[name]), value)
			}
		}
		// The sound ones come first; the loops last.
		for name, want := range map[string]struct {
			hits        int
			first, last string
		}{
			"text":  {16, `""`, ""},
			"ints":  {25, "{}", "(fault)"},
			"texts": {28, "(invalid)", `{(fault),"two"}`},
			"tree":  {37, "{}", "(fault)"},
			"hash":  {30, "{}", "{[3]=4" + strings.Repeat(",[3]=4", 7) + ",...}"},
			"chain": {23, "{}", "{" + strings.Repeat("1,", 8) + "...}"},
		} {
			if h := have[name]; len(h) != want.hits || h[0] != want.first || want.last != "" && h[len(h)-1] != want.last {
				t.Errorf("%s: %s: %d hits, want %d: %.300q", level, name, len(h), want.hits, h)
			}
		}
	}
}

// TestGoCorrupted is TestContainersCorrupted for Go. A slice that is longer than its
// capacity is none, wherever its words are.
func TestGoCorrupted(t *testing.T) {
	prog := fixture.BuildFile(t, filepath.Join(fixture.Root(), "cmd/kprobe/testdata/bad/containers_bad.go"))
	out := filepath.Join(t.TempDir(), "hits")
	argv := []string{"trace", "-q", "-o", out}
	cases := map[string]struct {
		hits  int
		shown *regexp.Regexp
	}{
		"ints":    {3, regexp.MustCompile(`^(\{\}|\(fault\))$`)},
		"bytes":   {5, nil},
		"held":    {5, nil},
		"text":    {5, regexp.MustCompile(`^(\(fault\)|\(invalid\)|"\\x01\\x00.*)$`)},
		"strings": {5, regexp.MustCompile(`^(\{(\(fault\)|\(invalid\)|").*\}|\(fault\)|\(invalid\))$`)},
		"map":     {27, regexp.MustCompile(`^(nil|\{\}|\{\["a"\]=1(,\["b"\]=2)?\}|\{(\["\d+"\]=\d+,){8}\.\.\.\}|\(fault\)|\(invalid\))$`)},
		"any":     {4, regexp.MustCompile(`^(nil|\(fault\)|\(invalid\))$`)},
		"err":     {4, regexp.MustCompile(`^(nil|\(fault\)|\(invalid\))$`)},
	}
	for name := range cases {
		arg := " x"
		if name == "held" {
			arg = " x=x->x"
		}
		argv = append(argv, "p:"+name+" main.see_"+name+arg)
	}
	argv = append(argv, "r:bytes_back main.see_bytes x", "r:held_back main.see_held x=x->x")
	said, err := exec.Command(program(t), append(argv, "--", prog)...).CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte("unharmed\n")) {
		t.Fatalf("%v\n%s", err, said)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	hits := map[string]int{}
	for _, m := range seenLine.FindAllSubmatch(text, -1) {
		name, value := string(m[1]), strings.TrimPrefix(string(m[2]), "x=")
		hits[name]++
		if kind := strings.TrimSuffix(name, "_back"); kind == "bytes" || kind == "held" {
			want := "(fault)"
			if n := hits[name]; n < 3 || n == 5 { // the capacity is at least the length
				want = map[string]string{"bytes": "{1,0,0}", "held": "{1,2,3}"}[kind]
			}
			if value != want {
				t.Errorf("%s %d: %s, want %s", name, hits[name], value, want)
			}
			continue
		}
		if !cases[name].shown.MatchString(value) {
			t.Errorf("%s %d: %.200s", name, hits[name], value)
		}
	}
	for name, c := range cases {
		if hits[name] != c.hits {
			t.Errorf("%s: %d hits, want %d", name, hits[name], c.hits)
		}
	}
}
