package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Rotating is a file that starts anew at a size: FILE becomes FILE.1, that FILE.2, and so on.
// It is not safe for concurrent use.
type Rotating struct {
	path string
	size int64
	keep int
	file *os.File // nil: closed
	n    int64    // bytes in file
}

// NewRotating creates the file, or empties it. Older ones stay until their number comes. Write
// starts a new file if this one would get larger than size bytes, and keeps keep old ones. A
// path that exists and is no regular file is an error, and so is a folder in which no file can
// be made.
func NewRotating(path string, size int64, keep int) (*Rotating, error) {
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: nothing can take its place", path)
	}
	if dir := filepath.Dir(path); unix.Access(dir, unix.W_OK) != nil {
		return nil, fmt.Errorf("no new file can be made in %s", dir)
	}
	r := &Rotating{path: path, size: size, keep: keep}
	return r, r.begin()
}

func (r *Rotating) begin() (err error) {
	r.n = 0
	r.file, err = os.Create(r.path)
	return err
}

// Write implements io.Writer. It doesn't split p: all of p is in one file, and may be larger
// than the size.
func (r *Rotating) Write(p []byte) (int, error) {
	if r.n > 0 && r.n+int64(len(p)) > r.size {
		if err := r.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := r.file.Write(p)
	r.n += int64(n)
	return n, err
}

// rotate gives each file the name of the next older one. The last one goes.
func (r *Rotating) rotate() error {
	err := r.Close()
	for i := r.keep; i > 0 && err == nil; i-- {
		if err = os.Rename(r.old(i-1), r.old(i)); errors.Is(err, os.ErrNotExist) {
			err = nil // there have not been so many yet
		}
	}
	if err != nil {
		return err
	}
	return r.begin()
}

// old is the name of the i-th last file, 0 being the one that is written.
func (r *Rotating) old(i int) string {
	if i == 0 {
		return r.path
	}
	return r.path + "." + strconv.Itoa(i)
}

// Close closes the file, if a failure of Write hasn't left it closed.
func (r *Rotating) Close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}
