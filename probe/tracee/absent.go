//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Pages that are not there
//
// If a page isn't in memory, a read makes the kernel fetch it. Mostly that takes no time. But
// for memory that the program fills itself (userfaultfd, FUSE) the kernel asks the program, and
// waits. The program may in turn be waiting for the tracer's thread, which is the one that
// reads: because the thread that fills the page is stopped, or all threads are. The wait can't
// be interrupted. So pages that aren't there (/proc/PID/pagemap) are read by a goroutine of
// their own. If that takes too long, the read is given up and fails like a read of unmapped
// memory. The goroutine ends when the page arrives or the process ends. A page of a file on a disk of the machine
// depends on nobody whom kprobe might have stopped, and has more time (absentfile.go).

const (
	// absentPatience is how long a missing page may take; a disk takes a while. Each
	// failure halves it for the process, until a page arrives in time.
	absentPatience = 100 * time.Millisecond
	leastPatience  = 10 * time.Millisecond
	// ownPatience is for memory that kprobe has mapped. The kernel fills it by itself,
	// though not at once on a busy machine, unless the program means harm.
	ownPatience = 5 * time.Second
	// filePatience is for files on disks of the machine, which the kernel reads by itself: on a busy one not at once.
	filePatience = 5 * time.Second
	// mostPatience is how long a read may take that only waits for a processor.
	mostPatience = 10 * time.Second
	// absentPart is the size of the parts that are waited for one by one.
	absentPart = 256 << 10
	// maxAbsent bounds the reads that were given up and have not ended. Each keeps an OS
	// thread.
	maxAbsent = 8
)

// absentees are the reads of a process that wait for pages. The zero value is ready to use. It
// is safe for concurrent use.
type absentees struct {
	waiting atomic.Int32 // number of reads that were given up and have not ended
	late    atomic.Int32 // number of consecutive reads that were given up
}

func (a *absentees) patience() time.Duration {
	return max(absentPatience>>min(a.late.Load(), 16), leastPatience)
}

// read is vmRead for memory that may not be there. A large read has the patience for each of
// its parts: hundreds of megabytes that were never touched take longer.
func (p *Process) read(b []byte, at uint64) (int, syscall.Errno) { return p.readPatiently(b, at, 0) }

// readPatiently is read with a minimum patience for each part.
func (p *Process) readPatiently(b []byte, at uint64, least time.Duration) (int, syscall.Errno) {
	if p.there(at, len(b)) {
		return p.vmRead(b, at)
	}
	for n := 0; ; {
		part := min(absentPart, len(b)-n)
		m, e := p.readAbsent(b[n:n+part], at+uint64(n), least)
		if n += m; n == len(b) || m < part {
			return n, e
		}
	}
}

// readAbsent reads memory of which some may not be there.
func (p *Process) readAbsent(b []byte, at uint64, least time.Duration) (int, syscall.Errno) {
	if p.there(at, len(b)) {
		return p.vmRead(b, at)
	}
	if p.absent.waiting.Load() >= maxAbsent {
		return 0, errLatePage
	}
	got := make(chan arrival, 1)
	p.absent.waiting.Add(1)
	size := len(b)
	var reader atomic.Int64
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer p.absent.waiting.Add(-1)
		reader.Store(int64(unix.Gettid()))
		buf := make([]byte, size)
		n, e := p.vmRead(buf, at)
		got <- arrival{buf[:n], e}
	}()
	w := waiting{runs: func() bool { return runs(int(reader.Load())) }, local: func() bool { return p.isLocalFile(at) }, after: time.After}
	r, ok := w.await(got, max(p.absent.patience(), least))
	if !ok {
		p.absent.late.Add(1)
		return 0, errLatePage
	}
	p.absent.late.Store(0)
	return copy(b, r.b), r.e
}

// arrival is what a read has got.
type arrival struct {
	b []byte
	e syscall.Errno
}

// waiting is how the end of a read is waited for.
type waiting struct {
	runs  func() bool // whether the reader runs, rather than waits in the kernel
	local func() bool // whether the page is that of a file on a disk of the machine
	after func(time.Duration) <-chan time.Time
}

// await waits for a read that begins, with patience at first. It is false if the read takes too long.
func (w *waiting) await(got <-chan arrival, patience time.Duration) (arrival, bool) {
	asked, local := false, false
	for waited := time.Duration(0); ; {
		select {
		case r := <-got:
			return r, true
		case <-w.after(patience):
		}
		if waited += patience; waited < mostPatience && w.runs() {
			continue
		}
		if !asked && waited < filePatience {
			asked, local = true, w.local()
		}
		if !local || waited >= filePatience {
			return arrival{}, false
		}
		patience = filePatience - waited
	}
}

// runs reports whether a thread of this process runs, or would if it got a processor, or one of
// the processors that Go shares out, for which it waits in a futex. It is false if the thread
// waits in the kernel for what it has asked for. tid 0 is a thread that has not begun.
func runs(tid int) bool {
	if tid == 0 {
		return true
	}
	if b, waits := blockedAt(os.Getpid(), tid); waits && b.Nr == unix.SYS_FUTEX {
		return true
	}
	return taskState(os.Getpid(), tid) == 'R'
}

// errLatePage says that a page did not arrive in time, so that no other way of reading is
// tried.
const errLatePage = syscall.ETIMEDOUT

// there reports whether all of a range is in memory, as far as is known. It doesn't ask about
// addresses beyond those that a program can map.
func (p *Process) there(at uint64, n int) bool {
	const end = 1 << 47
	if n <= 0 || at >= end || uint64(n) > end-at {
		return true
	}
	f := p.pagemapFile()
	first, last := at/pageSize, (at+uint64(n)-1)/pageSize
	var buf [pagemapEntry * 16]byte
	for first <= last {
		k := min(last-first+1, uint64(len(buf)/pagemapEntry))
		if !readPagemap(f, buf[:k*pagemapEntry], first) {
			return true
		}
		for i := range k {
			if binary.LittleEndian.Uint64(buf[i*pagemapEntry:])&pagePresent == 0 {
				return false
			}
		}
		first += k
	}
	return true
}
