package facts

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/output"
)

// TestAbsent: what isn't so, or can't be known, isn't said.
func TestAbsent(t *testing.T) {
	has := func(facts []output.Fact, name string) bool {
		return slices.ContainsFunc(facts, func(f output.Fact) bool { return f.Name == name })
	}
	m := newMachine(t)
	exe, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	m.link("200/exe", exe)
	if facts := m.check(); has(facts, "Go") || has(facts, "Java") {
		t.Errorf("a program in C has %+v", facts)
	}
	// A namespace that can't be read may be the same.
	m = newMachine(t)
	if err := os.Remove(filepath.Join(m.root, "200/ns/user")); err != nil {
		t.Fatal(err)
	}
	if f := find(t, m.check(), "namespaces"); strings.Contains(f.Text, "user") {
		t.Errorf("%+v", f)
	}
}

// TestDescends follows parents to the end, and over a chain that has none.
func TestDescends(t *testing.T) {
	for _, c := range []struct {
		parents map[string]string
		ok      bool
	}{
		{map[string]string{"200": "150", "150": "100"}, true},
		{map[string]string{"200": "150", "150": "1"}, false},
		{map[string]string{"200": "150", "150": "200"}, false},
		{map[string]string{"200": "150"}, false},
	} {
		m := newMachine(t)
		m.file("sys/kernel/yama/ptrace_scope", "1\n")
		m.asked["PPid"] = c.parents["200"]
		if p := c.parents["150"]; p != "" {
			m.file("150/status", text(map[string]string{"Name": "sh", "PPid": p}))
		}
		if f := find(t, m.check(), "ptrace scope"); f.OK != c.ok {
			t.Errorf("%v: %+v", c.parents, f)
		}
	}
}

// TestThreadsUnlisted: that a thread may be traced is said where it can't be known.
func TestThreadsUnlisted(t *testing.T) {
	m := newMachine(t)
	m.file("200/task", "")
	if f := find(t, m.check(), "tracer"); f.OK || !strings.Contains(f.Text, "can't be listed") {
		t.Errorf("%+v", f)
	}
}
