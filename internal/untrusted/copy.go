package untrusted

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds on what is copied from a file system in user space: bytes, how many at
// once, and how long all of it may wait.
const (
	maxCopied  = 4 << 30
	copiedOnce = 1 << 20
)

var copyPatience = 30 * time.Second

// remote reports whether the file's contents come from a program (FUSE).
func remote(f *os.File) bool {
	var on unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &on) == nil && on.Type == unix.FUSE_SUPER_MAGIC
}

// copyOf copies a file to one without a name, and closes it.
func copyOf(f *os.File, size int64) (*os.File, error) {
	if size > maxCopied {
		_ = f.Close()
		return nil, fmt.Errorf("it %w for a file system in user space: %d bytes", ErrTooLarge, size)
	}
	to, err := os.CreateTemp("", "kprobe-*.tmp")
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	_ = os.Remove(to.Name()) // at worst a copy is left behind
	left := copyPatience
	for off := int64(0); off < size; {
		b, waited, err := bounded(min(patience, left), func() ([]byte, error) {
			b := make([]byte, min(copiedOnce, size-off))
			n, err := f.ReadAt(b, off)
			if err == io.EOF && n > 0 {
				err = nil
			}
			return b[:n], err
		}, func([]byte) {})
		left -= waited
		if err == nil {
			_, err = to.WriteAt(b, off)
			off += int64(len(b))
		}
		if err != nil {
			_ = to.Close()
			if err != ErrNoAnswer {
				_ = f.Close() // else the one who waits has it
			}
			return nil, err
		}
	}
	_ = f.Close()
	return to, nil
}
