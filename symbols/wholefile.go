package symbols

import (
	"os"
	"sync"
	"syscall"
)

// wholeFiles are the files that are mapped whole for their debug information. Keys have no root,
// so each file is mapped only once, however many Caches open it. Files stay mapped as long as
// kprobe runs, because slices of them may be in use wherever debug information is. A mapped file
// keeps its inode number.
var wholeFiles struct {
	sync.Mutex
	by map[fileKey][]byte
}

// mapWhole maps the first size bytes of a file for reading.
func mapWhole(f *os.File, size int) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Size() != int64(size) {
		return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_PRIVATE)
	}
	key := fileKey{dev: sys.Dev, ino: sys.Ino, size: sys.Size, mtime: info.ModTime().UnixNano()}
	wholeFiles.Lock()
	defer wholeFiles.Unlock()
	if b := wholeFiles.by[key]; b != nil {
		return b, nil
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	if wholeFiles.by == nil {
		wholeFiles.by = map[fileKey][]byte{}
	}
	wholeFiles.by[key] = b
	return b, nil
}
