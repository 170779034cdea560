package bench

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReported(t *testing.T) {
	text := "  Total time   Self time       Calls  Function\n  ==========  ==========  ==========  ====================\n" +
		"   18.005 ms   18.005 ms      320000  work\n   18.005 ms   18.005 ms      7  bare_work\n"
	if n, err := reported(text, "work"); n != 320000 || err != nil {
		t.Errorf("%d calls, %v", n, err)
	}
	if n, err := reported(text, "pushed"); err == nil {
		t.Errorf("%d calls of a function that isn't there", n)
	}
	if n, err := reported("  Calls  work\n", "work"); err == nil {
		t.Errorf("%d calls in a line without a number", n)
	}
}

// TestLinkedSubject wants the loader to load the subject with a library before
// it, and the program to do what it is told.
func TestLinkedSubject(t *testing.T) {
	p, err := written(t.TempDir(), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if libs, err := f.ImportedLibraries(); len(libs) != 0 || err != nil {
		t.Errorf("it needs %v, %v", libs, err)
	}
	cmd := exec.Command(p.path)
	cmd.Env = append(os.Environ(), "LD_PRELOAD=libc.so.6")
	defer p.end()
	if err := p.run(cmd, 1); err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(maps), "libc.so.6") {
		t.Errorf("the library isn't there:\n%s", maps)
	}
	for _, fn := range []string{"work", "pushed"} {
		if ns, err := p.call(1, p.function(fn), 1000); err != nil || ns <= 0 {
			t.Errorf("%s: %v ns, %v", fn, ns, err)
		}
	}
	if err := p.leave(); err != nil {
		t.Error(err)
	}
}

// TestUftraceFails wants what stands in the way to be told, with what the tool
// says about it, and nothing to be left.
func TestUftraceFails(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	tool := filepath.Join(bin, "uftrace")
	for _, c := range []struct{ script, want string }{
		{"echo first; echo no such option >&2; exit 1", "no such option"},
		{"for last; do :; done; exec \"$last\"", "no child"}, // no tracer above it
	} {
		if err := os.WriteFile(tool, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		m := &meter{dir: t.TempDir(), o: Options{Each: time.Millisecond}, report: &Report{}}
		err := m.uftrace(context.Background())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.script, err)
		}
		if list, derr := os.ReadDir(m.dir); len(list) != 0 || derr != nil {
			t.Errorf("%s: %v is left, %v", c.script, list, derr)
		}
		if len(m.report.Rows) != 0 {
			t.Errorf("%s: a row", c.script)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := (&meter{dir: t.TempDir()}).uftrace(context.Background()); err == nil || errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("without the program: %v", err)
	}
}
