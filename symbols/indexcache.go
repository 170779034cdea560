package symbols

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"kprobe/symbols/debuginfo"
)

// Bounds on the folder of indexes and unpacked sections, in bytes: for one index, for all indexes, and for all
// sections. The oldest files are removed first.
const (
	maxIndex        = 128 << 20
	maxIndexes      = 512 << 20
	maxKeptSections = 3 << 30
)

// cacheDir is the folder in which files are kept; "" if there is none.
func (d finder) cacheDir() string {
	if d.index != "" {
		return d.index
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(base, "kprobe")
}

// indexFile keeps the index of one file's names in the user's cache folder.
// What goes wrong is no error: the index is made again.
type indexFile struct{ dir, path string }

// indexStore is where the index of the file's debug information, in im, is
// kept: by the build-id, or by what tells one file of this machine from others;
// nil where it can't be.
func (f *File) indexStore(im *image) debuginfo.IndexStore {
	dir := f.found.cacheDir()
	if dir == "" {
		return nil
	}
	name := f.BuildID
	if len(name) < minBuildID {
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

// minBuildID is how long a build-id must be in hexadecimal to tell files apart.
const minBuildID = 8

// Load implements debuginfo.IndexStore. The bytes are mapped, and stay for the
// life of the program.
func (x *indexFile) Load() []byte {
	b, _ := mapKept(x.path, maxIndex)
	return b
}

// mapKept maps a kept file, unless others than the user may write to it.
func mapKept(path string, most int64) ([]byte, error) {
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close() // the mapping stays
	st, err := r.Stat()
	if err != nil {
		return nil, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || !st.Mode().IsRegular() || st.Mode().Perm()&0o022 != 0 || int(sys.Uid) != os.Geteuid() ||
		st.Size() > most || st.Size() == 0 {
		return nil, os.ErrPermission
	}
	b, err := syscall.Mmap(int(r.Fd()), 0, int(st.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if now := time.Now(); err == nil && now.Sub(st.ModTime()) > 24*time.Hour {
		_ = os.Chtimes(path, now, now) // marks it as used, so that others are removed first
	}
	return b, err
}

// Save implements debuginfo.IndexStore.
func (x *indexFile) Save(b []byte) {
	if len(b) > maxIndex || os.MkdirAll(x.dir, 0o700) != nil {
		return
	}
	makeRoom(x.dir, ".index", int64(len(b)), maxIndexes)
	f, err := os.CreateTemp(x.dir, "new-*.tmp")
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err != nil || cerr != nil || os.Rename(f.Name(), x.path) != nil {
		_ = os.Remove(f.Name()) // nobody misses it
	}
}

// makeRoom removes the oldest files of a kind until n bytes more are within
// bounds, and what writers that were killed left behind.
func makeRoom(dir, ext string, n, most int64) {
	list, err := os.ReadDir(dir)
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
		path := filepath.Join(dir, e.Name())
		switch filepath.Ext(e.Name()) {
		case ext:
			all = append(all, kept{path, info.Size(), info.ModTime()})
			n += info.Size()
		case ".tmp":
			if time.Since(info.ModTime()) > time.Hour {
				_ = os.Remove(path)
			}
		}
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Or(a.when.Compare(b.when), cmp.Compare(a.path, b.path)) })
	for _, k := range all {
		if n <= most {
			return
		}
		if os.Remove(k.path) == nil {
			n -= k.size
		}
	}
}

// keptSection is the file that keeps a section as it was unpacked: its bytes,
// then sectionTail bytes that say whose they are.
type keptSection struct {
	dir, path string
	identity  uint64
}

// The end of such a file: magic, identity, length of the section in bytes.
const (
	sectionMagic = "kprobese"
	sectionTail  = 8 + 8 + 8
)

// keptSection says where an unpacked section is kept: by build-id; nil for files
// without one.
func (im *image) keptSection(s *elf.Section) *keptSection {
	id := im.buildID()
	if im.cache == "" || len(id) < minBuildID {
		return nil
	}
	h := crc32.NewIEEE()
	fmt.Fprintln(h, id, s.Name, s.Type, s.Flags, s.Offset, s.FileSize, s.Size, im.size) //nolint:errcheck // a hash takes all
	sum := uint64(h.Sum32())<<32 ^ s.FileSize ^ s.Size<<16
	return &keptSection{im.cache, filepath.Join(im.cache, fmt.Sprintf("%s%s-%x.section", id, s.Name, sum)), sum}
}

// load maps the section, nil where it isn't kept.
func (k *keptSection) load() []byte {
	if k == nil {
		return nil
	}
	b, err := mapKept(k.path, maxUnpacked+sectionTail)
	if err != nil {
		return nil
	}
	n := len(b) - sectionTail
	if n < 0 || string(b[n:n+8]) != sectionMagic || binary.LittleEndian.Uint64(b[n+8:]) != k.identity ||
		binary.LittleEndian.Uint64(b[n+16:]) != uint64(n) {
		_ = syscall.Munmap(b)
		return nil
	}
	return b[:n:n]
}

// save keeps the section and maps it. On an error nothing is left behind.
func (k *keptSection) save(r io.Reader) ([]byte, error) {
	if k == nil {
		return nil, os.ErrInvalid
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(k.dir, "new-*.tmp")
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(f, r)
	if err == nil {
		tail := binary.LittleEndian.AppendUint64([]byte(sectionMagic), k.identity)
		_, err = f.Write(binary.LittleEndian.AppendUint64(tail, uint64(n)))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		makeRoom(k.dir, ".section", n, maxKeptSections)
		err = os.Rename(f.Name(), k.path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error that is returned is the first one
		return nil, err
	}
	if b := k.load(); b != nil {
		return b, nil
	}
	return nil, os.ErrInvalid
}

// releaser gives a function that lets go the pages of parts of a section, if
// they are a mapped file's: they come back when they are read. nil is none.
func (im *image) releaser(name string) func(from, to uint64) {
	im.mu.Lock()
	defer im.mu.Unlock()
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
			_ = syscall.Madvise(all[lo:hi], syscall.MADV_DONTNEED) // a failure only costs memory
		}
	}
}
