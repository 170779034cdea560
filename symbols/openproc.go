package symbols

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"kprobe/internal/procfs"
)

// fileID gives a file's device and inode number.
func fileID(path string) (dev, ino uint64, ok bool) {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil {
		return 0, 0, false
	}
	return st.Dev, st.Ino, true
}

// openMapped opens the file behind a mapping, which the process may have in
// another mount namespace, or deleted. map_files is exact but root's;
// then the path in the process's own root, if it is still the same file; then
// the process's executable.
func (s *Space) openMapped(m Mapping) (*File, error) {
	proc := string(procfs.Image(s.pid))
	found := finder{}
	if !sameRoot(s.pid) {
		found.root = proc + "/root"
	}
	link := fmt.Sprintf("%s/map_files/%x-%x", proc, uint64(m.Start), uint64(m.End))
	f, err := s.cache.open("", link, m.Path, found)
	if err == nil || errors.Is(err, ErrBadELF) {
		return f, err
	}
	root := proc + "/root"
	if _, ino, ok := fileID(root + m.Path); ok && !m.Deleted && ino == m.Inode {
		return s.cache.open(root, m.Path, m.Path, found)
	}
	if _, ino, ok := fileID(proc + "/exe"); ok && ino == m.Inode {
		return s.cache.open("", proc+"/exe", m.Path, found)
	}
	if !m.Deleted { // file systems in layers show other inode numbers in maps
		if f, err2 := s.cache.open(root, m.Path, m.Path, found); err2 == nil || errors.Is(err2, ErrBadELF) {
			return f, err2
		}
	}
	return nil, fmt.Errorf("open %q, mapped by process %d: %w", m.Path, s.pid, procError(err))
}

// sameRoot reports whether the process has our own root directory.
func sameRoot(pid int) bool {
	d1, i1, ok1 := fileID(procfs.Image(pid).Path("root/"))
	d2, i2, ok2 := fileID("/")
	return ok1 && ok2 && d1 == d2 && i1 == i2
}

// exePath is what /proc/PID/exe links to, or "".
func exePath(pid int) string {
	p, err := os.Readlink(procfs.Image(pid).Path("exe"))
	if err != nil {
		return ""
	}
	const gone = " (deleted)"
	if len(p) > len(gone) && p[len(p)-len(gone):] == gone {
		p = p[:len(p)-len(gone)]
	}
	return p
}
