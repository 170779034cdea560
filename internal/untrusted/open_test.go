package untrusted

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOpen: what a name may lead to, and what becomes of it.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("plain"), []byte("contents"), 0o600))
	must(os.Symlink("plain", at("link")))
	must(syscall.Mkfifo(at("fifo"), 0o600))
	must(os.Symlink("fifo", at("link-to-fifo")))
	must(os.Mkdir(at("folder"), 0o700))
	must(os.Symlink("loop", at("loop")))
	socket, err := net.Listen("unix", at("socket"))
	must(err)
	defer socket.Close()
	must(os.WriteFile(at("huge"), []byte("x"), 0o600))
	must(os.Truncate(at("huge"), 8<<40))
	must(os.WriteFile(at("holes"), []byte("x"), 0o600))
	must(os.Truncate(at("holes"), 8<<30))
	must(os.WriteFile(at("few-holes"), make([]byte, 8<<20), 0o600))
	must(os.Truncate(at("few-holes"), 80<<20))
	must(os.WriteFile(at("empty"), nil, 0o600))

	for _, c := range []struct {
		path string
		want error
	}{
		{at("plain"), nil}, {at("link"), nil}, {at("empty"), nil}, {at("few-holes"), nil},
		{"/proc/self/exe", nil},
		{at("fifo"), ErrIrregular}, {at("link-to-fifo"), ErrIrregular}, {at("folder"), ErrIrregular}, {at("socket"), ErrIrregular},
		{"/dev/null", ErrIrregular}, {"/dev/zero", ErrIrregular}, {"/dev/tty", ErrIrregular}, {"/dev/full", ErrIrregular},
		{"/proc/self/mem", ErrIrregular}, {"/proc/self/maps", ErrIrregular}, {"/sys/kernel/mm/transparent_hugepage/enabled", ErrIrregular},
		{at("huge"), ErrTooLarge}, {at("holes"), ErrTooLarge},
		{at("loop"), syscall.ELOOP}, {at("none"), os.ErrNotExist}, {"", os.ErrNotExist}, {"a\x00b", syscall.EINVAL},
	} {
		start := time.Now()
		f, info, err := Open(c.path)
		if f != nil {
			defer f.Close()
		}
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("Open(%q) = %v, want %v", c.path, err, c.want)
		}
		if err == nil && (f == nil || !info.Mode().IsRegular()) {
			t.Errorf("Open(%q) gives no file", c.path)
		}
		if took := time.Since(start); took > patience {
			t.Errorf("Open(%q) took %v", c.path, took)
		}
	}
	f, _, err := Open(at("link"))
	must(err)
	defer f.Close()
	if b, err := io.ReadAll(f); string(b) != "contents" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
}

// TestOpenTouchesNothing: a FIFO's other end learns nothing of a look at it.
func TestOpenTouchesNothing(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(fifo); !errors.Is(err, ErrIrregular) {
		t.Fatal(err)
	}
	if _, err := unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK, 0); err != unix.ENXIO {
		t.Errorf("the FIFO has a reader: %v", err)
	}
}

// TestOpenInRoot: links and ".." of another root stay below it.
func TestOpenInRoot(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for path, text := range map[string]string{filepath.Join(dir, "secret"): "outside", filepath.Join(root, "secret"): "inside"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"absolute": "/secret", "up": "../../secret", "self": "/proc/self/exe"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/secret", "/absolute", "/up", "/../secret", "//secret"} {
		f, _, err := OpenIn(root, path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if b, err := io.ReadAll(f); string(b) != "inside" || err != nil {
			t.Errorf("%s leads to %q, %v", path, b, err)
		}
		f.Close()
	}
	if _, _, err := OpenIn(root, "/self"); err == nil || !strings.Contains(err.Error(), root) {
		t.Errorf("a link out of the root: %v", err)
	}
}

// TestOpenLease: a lease of somebody else on the file isn't waited for.
func TestOpenLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leased")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Logf("this file system has no leases: %v", err)
		return
	}
	start := time.Now()
	if got, _, err := Open(path); err == nil {
		got.Close()
	} else if !errors.Is(err, unix.EAGAIN) {
		t.Error(err)
	}
	if took := time.Since(start); took > patience {
		t.Errorf("waited %v", took)
	}
}
