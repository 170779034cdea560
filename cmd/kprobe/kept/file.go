package kept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// File is the file of kept definitions. Its methods may be called by several
// goroutines and processes at once.
type File struct {
	Path string // absolute
}

// Read gives what is kept now; a file that does not exist holds nothing.
func (f *File) Read() (*List, error) {
	b, err := f.bytes()
	if err != nil {
		return nil, err
	}
	return Parse(bytes.NewReader(b), f.Path)
}

func (f *File) bytes() ([]byte, error) {
	b, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kept definitions: %w", err)
	}
	return b, nil
}

// Update lets change work on what is kept and keeps the result: when it
// returns nil the result is on the disk, and when it returns an error the file
// is as it was. Others that change the file at the same time wait.
func (f *File) Update(ctx context.Context, change func(*List) error) error {
	unlock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	before, err := f.bytes()
	if err != nil {
		return err
	}
	l, err := Parse(bytes.NewReader(before), f.Path)
	if err != nil {
		return err
	}
	if err := change(l); err != nil {
		return err
	}
	after := l.Bytes()
	if bytes.Equal(before, after) {
		return nil
	}
	if err := f.replace(after); err != nil {
		return fmt.Errorf("keep definitions (those of before are still there): %w", err)
	}
	return nil
}

// lockWait is how often a lock that another process holds is asked for again.
const lockWait = 2 * time.Millisecond

// lock takes the lock beside the file. The lock's own file stays: removing it
// would let two processes hold two locks of one name.
func (f *File) lock(ctx context.Context) (unlock func(), err error) {
	if st, err := os.Stat(f.Path); err == nil && !st.Mode().IsRegular() {
		// A rename would put a file in the place of a device.
		return nil, fmt.Errorf("kept definitions: %s is not a regular file", f.Path)
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return nil, fmt.Errorf("kept definitions: %w; KPROBE_EVENTS=FILE keeps them elsewhere", err)
	}
	lock, err := os.OpenFile(f.Path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock kept definitions: %w", err)
	}
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { lock.Close() }, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			lock.Close()
			return nil, fmt.Errorf("lock kept definitions: %w", err)
		}
		select {
		case <-ctx.Done():
			lock.Close()
			return nil, fmt.Errorf("lock kept definitions: %w", ctx.Err())
		case <-time.After(lockWait):
		}
	}
}

// replace puts new contents in the file's place, whole or not at all: they are
// on the disk before they get its name. The lock is held.
func (f *File) replace(b []byte) (err error) {
	path, mode := f.Path, fs.FileMode(0o600)
	// A link stays a link: what it leads to is replaced.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if st, err := os.Stat(path); err == nil {
		mode = st.Mode().Perm()
	}
	// A temporary file of an earlier process that was killed is overwritten.
	temp := path + ".new"
	w, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	if err == nil {
		err = w.Sync()
	}
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // its room is needed; what is left is overwritten
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes a rename last. Filesystems that can't sync folders keep
// their own order.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}
