package untrusted

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fuse mounts a file system of one file, "f" of 64 KB, and serves it until it
// is asked for a byte behind answers (the protocol: linux/fuse.h).
func fuse(t *testing.T, answers int) string {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Logf("without FUSE there is nothing to be shown: %v", err)
		return ""
	}
	dir := t.TempDir()
	opts := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", dev, os.Getuid(), os.Getgid())
	if err := unix.Mount("fuse", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		unix.Close(dev)
		t.Logf("without the right to mount there is nothing to be shown: %v", err)
		return ""
	}
	t.Cleanup(func() {
		// Whoever waits gets an error.
		if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		unix.Close(dev)
	})
	go serveFuse(dev, answers)
	return filepath.Join(dir, "f")
}

// polls is how often servers were asked whether a file is ready.
var polls atomic.Int32

func serveFuse(dev, answers int) {
	le := binary.LittleEndian
	attr := func(ino uint64, mode uint32, size uint64) []byte {
		b := make([]byte, 88)
		le.PutUint64(b, ino)
		le.PutUint64(b[8:], size)
		le.PutUint64(b[16:], (size+511)/512)
		le.PutUint32(b[60:], mode)
		le.PutUint32(b[64:], 1)
		return b
	}
	const size = 64 << 10
	for b := make([]byte, 1<<20); ; {
		n, err := unix.Read(dev, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		op, unique, node, body := le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:]), b[40:n]
		var out []byte
		errno := int32(0)
		switch op {
		case 26: // INIT
			out = make([]byte, 64)
			le.PutUint32(out, 7)
			le.PutUint32(out[4:], 31)
			le.PutUint32(out[20:], 1<<17)
		case 1: // LOOKUP
			if string(bytes.TrimRight(body, "\x00")) != "f" {
				errno = -int32(unix.ENOENT)
				break
			}
			out = append(make([]byte, 40), attr(2, unix.S_IFREG|0o644, size)...)
			le.PutUint64(out, 2)
		case 3: // GETATTR
			out = make([]byte, 16)
			if node == 1 {
				out = append(out, attr(1, unix.S_IFDIR|0o755, 0)...)
			} else {
				out = append(out, attr(2, unix.S_IFREG|0o644, size)...)
			}
		case 17: // STATFS
			out = make([]byte, 80)
		case 14, 27: // OPEN, OPENDIR
			out = make([]byte, 16)
		case 15: // READ
			from, want := int(le.Uint64(body[8:])), int(le.Uint32(body[16:]))
			if from+want > answers {
				continue // never
			}
			out = bytes.Repeat([]byte("a"), want)
		case 2, 36: // FORGET, INTERRUPT
			continue
		case 40: // POLL
			polls.Add(1)
			errno = -int32(unix.ENOSYS)
		case 18, 25, 29, 42: // RELEASE and the like
		default:
			errno = -int32(unix.ENOSYS)
		}
		h := make([]byte, 16)
		le.PutUint32(h, uint32(16+len(out)))
		le.PutUint32(h[4:], uint32(errno))
		le.PutUint64(h[8:], unique)
		_, _ = unix.Write(dev, append(h, out...))
	}
}

// TestOpenUserSpace: what lies on a file system in user space is copied, and its
// server isn't waited for long.
func TestOpenUserSpace(t *testing.T) {
	if path := fuse(t, 1<<30); path != "" {
		f, info, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := make([]byte, 64<<10)
		if _, err := f.ReadAt(b, 0); err != nil || string(b[len(b)-1:]) != "a" || info.Size() != 64<<10 {
			t.Errorf("read %d bytes, %v", info.Size(), err)
		}
		var on unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &on); err != nil || on.Type == unix.FUSE_SUPER_MAGIC {
			t.Errorf("the file is still that of the program: %v", err)
		}
		if n := polls.Load(); n > 0 {
			t.Errorf("the server was asked %d times whether the file is ready", n)
		}
	}
	defer func(was time.Duration) { patience = was }(patience)
	patience = 200 * time.Millisecond
	if path := fuse(t, 16<<10); path != "" {
		if f, _, err := Open(path); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("opened %v, %v", f, err)
		}
	}
}
