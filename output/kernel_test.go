package output

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
)

// TestColumnsAreTheKernels has the kernel print a line in its own trace file
// and compares the columns with those of a hit at the same time, on the same
// CPU, in the same thread.
func TestColumnsAreTheKernels(t *testing.T) {
	instances := filepath.Join(fixture.NeedFile(t, "/sys/kernel/tracing"), "instances")
	dir := filepath.Join(instances, fmt.Sprintf("kprobe_output_%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		fixture.Missing(t, "tracefs to write to: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	set := func(name, value string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	set("trace_clock", "mono")
	set("options/irq-info", "0")
	set("trace_marker", "hello")
	text, err := os.ReadFile(filepath.Join(dir, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	var theirs string
	for l := range strings.Lines(string(text)) {
		if strings.HasSuffix(l, ": tracing_mark_write: hello\n") {
			theirs = strings.TrimSuffix(l, "tracing_mark_write: hello\n")
		}
	}
	m := regexp.MustCompile(`^ *(.+)-(\d+) +\[(\d+)\] +(\d+)\.(\d{6}): $`).FindStringSubmatch(theirs)
	if m == nil {
		t.Fatalf("the kernel's line has another shape: %q in\n%s", theirs, text)
	}
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	h := newScene(t).hit(t, "p:ev work", fetch.Regs{}, nil)
	h.Comm, h.TID, h.CPU = m[1], number(m[2]), number(m[3])
	h.Time = uint64(number(m[4]))*1e9 + uint64(number(m[5]))*1e3
	ours, _, _ := strings.Cut(line(t, Text, h), "ev: (")
	if ours != theirs {
		t.Errorf("ours   %q\ntheirs %q", ours, theirs)
	}
}
