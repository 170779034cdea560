//go:build linux && amd64

package tracee

import (
	"os"

	"kprobe/internal/procfs"
)

// What kprobe needs of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst): the size of a
// page's entry in bytes, and bits of it.
const (
	pagemapEntry = 8
	pagePresent  = 1 << 63
	pageSwapped  = 1 << 62
)

// readPagemap reads entries, from that of the page with number first on. It is false if f is nil, or
// doesn't cover such memory.
func readPagemap(f *os.File, entries []byte, first uint64) bool {
	if f == nil {
		return false
	}
	n, err := f.ReadAt(entries, int64(first*pagemapEntry))
	return err == nil && n == len(entries)
}

// pagemapFile opens /proc/PID/pagemap once; nil if that fails.
func (p *Process) pagemapFile() *os.File {
	p.memMu.Lock()
	defer p.memMu.Unlock()
	if p.pagemap == nil && !p.noPagemap && !p.gone.Load() {
		var err error
		if p.pagemap, err = os.Open(procfs.Image(p.pid).Path("pagemap")); err != nil {
			p.noPagemap = true
		}
	}
	return p.pagemap
}
