package symbols

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"kprobe/symbols/debuginfo"
)

// Bounds on the folder of indexes, in bytes: one index, and all together. The
// oldest go first.
const (
	maxIndex   = 128 << 20
	maxIndexes = 512 << 20
)

// indexFile keeps the index of one file's names in the user's cache folder.
// What goes wrong is no error: the index is made again.
type indexFile struct{ dir, path string }

// indexStore is where the index of the file's debug information, in im, is
// kept: by the build-id, or by what tells one file of this machine from others;
// nil where it can't be.
func (f *File) indexStore(im *image) debuginfo.IndexStore {
	dir := f.found.index
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil
		}
		dir = filepath.Join(base, "kprobe")
	}
	name := f.BuildID
	if len(name) < 8 {
		r, ok := im.r.(*os.File)
		if !ok {
			return nil
		}
		st, err := r.Stat()
		if err != nil {
			return nil
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		name = fmt.Sprintf("file-%x-%x-%x-%x", sys.Dev, sys.Ino, sys.Size, st.ModTime().UnixNano())
	}
	return &indexFile{dir, filepath.Join(dir, name+".index")}
}

// Load implements debuginfo.IndexStore. A file that others may write to is not
// used.
func (x *indexFile) Load() []byte {
	r, err := os.OpenFile(x.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer r.Close()
	st, err := r.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Mode().Perm()&0o022 != 0 || st.Size() > maxIndex {
		return nil
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != os.Geteuid() {
		return nil
	}
	b := make([]byte, st.Size())
	if _, err := io.ReadFull(r, b); err != nil {
		return nil
	}
	if now := time.Now(); now.Sub(st.ModTime()) > 24*time.Hour {
		_ = os.Chtimes(x.path, now, now) // it is in use: others go first
	}
	return b
}

// Save implements debuginfo.IndexStore.
func (x *indexFile) Save(b []byte) {
	if len(b) > maxIndex || os.MkdirAll(x.dir, 0o700) != nil {
		return
	}
	x.makeRoom(int64(len(b)))
	f, err := os.CreateTemp(x.dir, "new-*.tmp")
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err != nil || cerr != nil || os.Rename(f.Name(), x.path) != nil {
		_ = os.Remove(f.Name()) // nobody misses it
	}
}

// makeRoom removes the oldest indexes until n bytes more are within bounds, and
// what writers that were killed left behind.
func (x *indexFile) makeRoom(n int64) {
	list, err := os.ReadDir(x.dir)
	if err != nil {
		return
	}
	type kept struct {
		path string
		size int64
		when time.Time
	}
	var all []kept
	for _, e := range list {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		path := filepath.Join(x.dir, e.Name())
		switch filepath.Ext(e.Name()) {
		case ".index":
			all = append(all, kept{path, info.Size(), info.ModTime()})
			n += info.Size()
		case ".tmp":
			if time.Since(info.ModTime()) > time.Hour {
				_ = os.Remove(path)
			}
		}
	}
	slices.SortFunc(all, func(a, b kept) int { return a.when.Compare(b.when) })
	for _, k := range all {
		if n <= maxIndexes {
			return
		}
		if os.Remove(k.path) == nil {
			n -= k.size
		}
	}
}

// releaser gives a function that lets go the pages of parts of a section, if
// they are a mapped file's: they come back when they are read. nil is none.
func (im *image) releaser(name string) func(from, to uint64) {
	for _, u := range im.unpacked {
		if u.name == name || u.name == ".z"+name[1:] {
			return releaser(u.bytes, 0)
		}
	}
	s := im.section(name)
	if im.whole == nil || s == nil || s.flags&elf.SHF_COMPRESSED != 0 {
		return nil
	}
	return releaser(im.whole, uint64(s.off))
}

// releaser lets go of mapped bytes, counted from base.
func releaser(all []byte, base uint64) func(from, to uint64) {
	page := uint64(os.Getpagesize())
	return func(from, to uint64) {
		lo, hi := (base+from)/page*page, (base+to)/page*page
		if lo < hi && hi <= uint64(len(all)) {
			_ = syscall.Madvise(all[lo:hi], syscall.MADV_DONTNEED) // what stays costs memory alone
		}
	}
}
