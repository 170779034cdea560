package debuginfod

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// missTime is how long a server's answer counts that it doesn't have a file. It is the
// library's cache_miss_s.
const missTime = 10 * time.Minute

// validID reports whether a text is a build-id in lower-case hexadecimal, which is safe in
// paths.
func validID(id string) bool {
	if len(id) < 4 || len(id) > 128 || len(id)%2 != 0 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func (c *Config) path(id string) string { return filepath.Join(c.Dir, id, "debuginfo") }

// Cached returns the path of a debug file that was fetched before. ok is false if there is
// none. The caller checks whether it is the right file.
func (c *Config) Cached(id string) (path string, ok bool) {
	if c.Dir == "" || !validID(id) {
		return "", false
	}
	path = c.path(id)
	st, err := os.Stat(path)
	return path, err == nil && st.Mode().IsRegular() && st.Size() > 0
}

// missing reports whether all servers have said a short while ago that they don't have the
// file. The library notes this with an empty file.
func (c *Config) missing(id string) bool {
	st, err := os.Stat(c.path(id))
	return err == nil && st.Mode().IsRegular() && st.Size() == 0 && time.Since(st.ModTime()) < missTime
}

// noteMissing writes that note, if it can.
func (c *Config) noteMissing(id string) {
	path := c.path(id)
	if st, err := os.Stat(path); err == nil && st.Size() > 0 || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err == nil {
		_ = f.Close() // a lost note only costs a request
	}
}

// scratch makes a file next to the place of a build-id's debug file.
func (c *Config) scratch(id string) (*os.File, error) {
	dir := filepath.Dir(c.path(id))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cache folder: %w", err)
	}
	f, err := os.CreateTemp(dir, "kprobe-*.tmp")
	if err != nil {
		return nil, fmt.Errorf("write to the cache: %w", err)
	}
	return f, nil
}
