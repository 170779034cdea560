package symbols

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// ownMap is the map of the test's own process.
func ownMap(t *testing.T) (s *Space, path string) {
	t.Helper()
	path = fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	_ = os.Remove(path)
	t.Cleanup(func() { _ = os.Remove(path) })
	s, err := OpenProcess(os.Getpid(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, path
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		_ = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantName waits for the name: a look may not be due yet.
func wantName(t *testing.T, s *Space, a Addr, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		got = ""
		if name, off, size, m, ok := s.NameAt(a, true); ok && m == nil {
			got = fmt.Sprintf("%s+%#x/%#x", name, off, size)
		}
		if got == want {
			return
		}
	}
	t.Fatalf("%#x is %q, want %q", a, got, want)
}

func TestPerfMap(t *testing.T) {
	s, path := ownMap(t)
	wantName(t, s, 0x100010, "")
	appendTo(t, path, "100000 100 a b\n0x100200 0x10 c\nnonsense\nffffffffffffffff 2 wraps\n100300 0 empty\n100300 10\n10")
	wantName(t, s, 0x100010, "a b+0x10/0x100")
	wantName(t, s, 0x100200, "c+0x0/0x10")
	wantName(t, s, 0x1000ff, "a b+0xff/0x100")
	for _, a := range []Addr{0xfffff, 0x100100, 0x100210, 0x100300} {
		if name, _, _, _, ok := s.NameAt(a, false); ok {
			t.Errorf("%#x is %s", a, name)
		}
	}
	// The line that was still being written, and code over what was there.
	n := s.Renamed()
	appendTo(t, path, "0400 10 late\n100080 20 moved\n")
	wantName(t, s, 0x100408, "late+0x8/0x10")
	wantName(t, s, 0x100090, "moved+0x10/0x20")
	wantName(t, s, 0x1000a0, "a b+0xa0/0x100")
	wantName(t, s, 0x10007f, "a b+0x7f/0x100")
	if s.Renamed() == n {
		t.Error("the names changed, and nobody is told")
	}
	// Written anew, longer than it was: what was there is no more.
	if err := os.WriteFile(path, []byte("100000 8 new\n"+strings.Repeat("200000 8 filler\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantName(t, s, 0x100004, "new+0x4/0x8")
	wantName(t, s, 0x100408, "")
	// A process that has ended takes its map along; what is known stays.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantName(t, s, 0x100004, "new+0x4/0x8")
}

func TestPerfMapLarge(t *testing.T) {
	s, path := ownMap(t)
	line := "200000 8 " + strings.Repeat("x", 1014) + "\n" // 1 KB
	appendTo(t, path, "100000 8 oldest\n"+strings.Repeat(line, maxPerfMap/len(line)+1)+"100010 8 newest\n")
	wantName(t, s, 0x100010, "newest+0x0/0x8")
	wantName(t, s, 0x100000, "")
	s.perf.mu.Lock()
	defer s.perf.mu.Unlock()
	if n := len(s.perf.lines); n > maxPerfMap/2/len(line)+2 {
		t.Errorf("%d lines are kept", n)
	}
}

func TestPerfMapForeign(t *testing.T) {
	const text = "100000 8 theirs\n"
	elsewhere := t.TempDir() + "/map"
	if err := os.WriteFile(elsewhere, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func(path string) error{
		"link":   func(path string) error { return os.Symlink(elsewhere, path) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"earlier": func(path string) error {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return err
			}
			then := time.Now().Add(-1000 * time.Hour)
			return os.Chtimes(path, then, then)
		},
		"another user's": func(path string) error {
			if os.Getuid() != 0 {
				return nil // nobody can give a file away
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return err
			}
			return os.Chown(path, 4711, 4711)
		},
	} {
		s, path := ownMap(t)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if got, _, _, _, ok := s.NameAt(0x100000, false); ok {
			t.Errorf("%s: it is believed: %s", name, got)
		}
		_ = os.Remove(path)
	}
}
