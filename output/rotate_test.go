package output

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// Lines go on in new files, none is torn or lost but with the oldest file.
func TestRotating(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	r, err := NewRotating(path, 1000, 3)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for i := range 100 {
		line := fmt.Appendf(nil, "line %070d\n", i)
		all = append(all, line...)
		if n, err := r.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	long := bytes.Repeat([]byte("x"), 2000)
	if _, err := r.Write(long); err != nil {
		t.Fatal(err)
	}
	all = append(all, long...)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var kept []byte
	for i := 3; i >= 0; i-- {
		text, err := os.ReadFile(r.old(i))
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 1000 && !slices.Equal(text, long) {
			t.Errorf("%s has %d bytes", r.old(i), len(text))
		}
		kept = append(kept, text...)
	}
	if !bytes.HasSuffix(all, kept) || len(kept) < 4000 {
		t.Errorf("%d bytes of %d were kept:\n%.300s", len(kept), len(all), kept)
	}
	if list, _ := os.ReadDir(dir); len(list) != 4 {
		t.Errorf("%d files", len(list))
	}
}

// What isn't a regular file is left alone.
func TestRotatingRefused(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/null", dir, link, filepath.Join(dir, "none", "out")} {
		if _, err := NewRotating(path, 1000, 3); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
}

// A file that can't be renamed is the one failure, and what it has stays.
func TestRotatingFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	if err := os.Mkdir(path+".1", 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := NewRotating(path, 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(r)
	if _, err := w.Write([]byte("first line\n")); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte("second\n")) // it may wait
	if err := w.Close(); !errors.Is(err, os.ErrExist) && !errors.Is(err, syscall.EISDIR) {
		t.Errorf("got %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("a second failure: %v", err)
	}
	if text, err := os.ReadFile(path); string(text) != "first line\n" {
		t.Errorf("%q, %v", text, err)
	}
}
