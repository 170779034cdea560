package symbols

import (
	"sync"
	"syscall"

	"kprobe/symbols/debuginfod"
)

// Cache shares Files between the Spaces of several processes: a library that all of them map is
// read once. The zero value is ready to use. It is safe for concurrent use. Files that it has opened stay
// open as long as the Cache is reachable.
type Cache struct {
	// DebugDir is where separate debug files are looked for instead of
	// /usr/lib/debug. It is set before the first file is opened.
	DebugDir string
	// Debuginfod says where files from debuginfod servers are kept, and found. nil is
	// nowhere. No server is asked here; Space.FetchDebug does that. It must be set before
	// the first file is opened.
	Debuginfod *debuginfod.Config

	// IndexDir is the folder where indexes of large debug files are kept; ""
	// is kprobe in the user's cache folder. It is set before the first file is
	// opened.
	IndexDir string

	indexFrom int // for tests: debuginfo.Options.IndexFrom

	mu    sync.Mutex
	files map[fileKey]*File
}

// fileKey identifies a file. A file that was written to since has another key.
type fileKey struct {
	dev, ino    uint64
	size, mtime int64
	root        string
}

// OpenFile is the function OpenFile with the cache.
func (c *Cache) OpenFile(path string) (*File, error) { return c.open("", path, path, finder{}) }

// open opens the file at path below root, to be known as name.
func (c *Cache) open(root, path, name string, found finder) (*File, error) {
	r, info, err := openNamed(root, path)
	if err != nil {
		return nil, err
	}
	found.debug, found.fetched = c.DebugDir, c.Debuginfod
	found.index, found.indexFrom = c.IndexDir, c.indexFrom
	key := fileKey{root: found.root}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		key.dev, key.ino, key.size, key.mtime = sys.Dev, sys.Ino, sys.Size, info.ModTime().UnixNano()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.files[key]; f != nil && f.Path == name {
		r.Close()
		return f, nil
	}
	f, err := newFile(name, r, info.Size(), found)
	if err != nil {
		r.Close()
		return nil, err
	}
	if c.files == nil {
		c.files = map[fileKey]*File{}
	}
	c.files[key] = f
	return f, nil
}
