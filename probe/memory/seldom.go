package memory

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"kprobe/probe/ring"
)

// How little of the memory file kprobe holds
//
// What a process has mapped and touched counts as its memory, also where a file has it. For a hundred thousand probes,
// the journal, the descriptors, the counters and the fallback handlers' table are tens of megabytes, which kprobe
// writes or reads once in a long while. So it lets go of their pages when it has touched some of them. The file keeps
// what is in them, and whoever touches one maps it again. Neither a store of others at that moment is lost, nor one of
// kprobe's own.

const (
	// seldomMost is how many pages of a part kprobe holds: a MiB.
	seldomMost = 1 << 20 / PageSize
	// seldomLeast is how many it holds of each of many equal parts: as many as the kernel maps at once for a read
	// (fault_around_bytes).
	seldomLeast = 16
)

// Seldom counts the pages that kprobe touches in a part of the memory file. It may be used concurrently.
type Seldom struct {
	file  *File
	part  ring.Section
	most  int64
	last  atomic.Int64 // the page that was touched last
	pages atomic.Int64 // touched since they were let go of, some of them more than once
}

// Seldom looks after a part of the file that consists of some equal ones: who touches one touches the others, too, and
// notes the first.
func (m *File) Seldom(part ring.Section, equal int) *Seldom {
	return &Seldom{file: m, part: part, most: max(seldomMost/int64(equal), seldomLeast)}
}

// Touched notes that size bytes at an offset in the file were written or read. In order of address there are the fewest
// faults.
func (s *Seldom) Touched(at int64, size int) {
	first, last := at/PageSize, (at+int64(size)-1)/PageSize
	if s.last.Swap(last) == first {
		first++
	}
	if first <= last && s.pages.Add(last-first+1) >= s.most {
		s.letGo()
	}
}

// letGo unmaps the part's pages here. It fails where they must stay, as with mlockall(2) or where pages are huge:
// then kprobe holds them.
func (s *Seldom) letGo() {
	s.pages.Store(0)
	if mem := s.file.Mem; mem != nil {
		_ = unix.Madvise(mem[s.part.Off:s.part.End()], unix.MADV_DONTNEED)
		runtime.KeepAlive(s.file)
	}
}
