//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"kprobe/internal/procfs"

	"golang.org/x/sys/unix"
)

// Pages that are not there
//
// To read a page that isn't in memory has the kernel fetch it. Mostly it has it at
// once; but of memory that the program fills itself (userfaultfd, a file system of
// FUSE) it asks the program, and waits. The program may be waiting in turn for the
// tracer's thread, which reads: at a stop of the thread that fills, or of
// all. The wait can't be interrupted. So what isn't there (/proc/PID/pagemap) is
// read by a goroutine of its own, and given up if it waits too long: the read fails
// as one of memory that isn't mapped. What was given up ends when the page comes, or
// the process ends.

const (
	// absentPatience is how long a page may take that isn't there: a disk's does.
	// Each time in vain halves it for the process, until one comes in time.
	absentPatience = 100 * time.Millisecond
	leastPatience  = 10 * time.Millisecond
	// ownPatience is for memory that kprobe has mapped: the kernel fills it, if not at
	// once where the machine is busy, unless the program means harm.
	ownPatience = 5 * time.Second
	// mostPatience is how long a read may take that waits for a processor only.
	mostPatience = 10 * time.Second
	// absentPart is how much is waited for at once.
	absentPart = 256 << 10
	// maxAbsent is how many reads may be given up and not ended; each keeps a
	// thread of the system.
	maxAbsent = 8
)

// absentees are the reads of a process that wait for pages. The zero value is
// ready. It is safe for concurrent use.
type absentees struct {
	waiting atomic.Int32 // given up, and not ended
	late    atomic.Int32 // in vain in a row
}

func (a *absentees) patience() time.Duration {
	return max(absentPatience>>min(a.late.Load(), 16), leastPatience)
}

// read is vmRead of a process, of what is there. Of much memory, the patience is for
// each part of it: hundreds of megabytes that were never touched take longer.
func (p *Process) read(b []byte, at uint64) (int, syscall.Errno) { return p.readPatiently(b, at, 0) }

// readPatiently is read where each part may take some time at least.
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

// readAbsent is read of memory of which some may not be there.
func (p *Process) readAbsent(b []byte, at uint64, least time.Duration) (int, syscall.Errno) {
	if p.there(at, len(b)) {
		return p.vmRead(b, at)
	}
	if p.absent.waiting.Load() >= maxAbsent {
		return 0, errLatePage
	}
	type result struct {
		b []byte
		e syscall.Errno
	}
	got := make(chan result, 1)
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
		got <- result{buf[:n], e}
	}()
	timeout := time.NewTimer(max(p.absent.patience(), least))
	defer timeout.Stop()
	for start := time.Now(); ; timeout.Reset(max(p.absent.patience(), least)) {
		select {
		case r := <-got:
			p.absent.late.Store(0)
			return copy(b, r.b), r.e
		case <-timeout.C:
			if time.Since(start) < mostPatience && runs(int(reader.Load())) {
				continue
			}
			p.absent.late.Add(1)
			return 0, errLatePage
		}
	}
}

// runs reports whether a thread of this process doesn't wait in the kernel for what it
// has asked: it runs, or would if it got a processor, or one of those that Go shares
// out, for which it waits in a futex. 0 is one that has not begun.
func runs(tid int) bool {
	if tid == 0 {
		return true
	}
	if b, waits := blockedAt(os.Getpid(), tid); waits && b.Nr == unix.SYS_FUTEX {
		return true
	}
	return taskState(os.Getpid(), tid) == 'R'
}

// errLatePage says that a page did not come in time: nothing else is tried.
const errLatePage = syscall.ETIMEDOUT

// there reports whether all of a range is in memory, as far as is known. Memory
// beyond what a program can map isn't asked about.
func (p *Process) there(at uint64, n int) bool {
	const entry, present, end = 8, 63, 1 << 47
	if n <= 0 || at >= end || uint64(n) > end-at {
		return true
	}
	f := p.pagemapFile()
	if f == nil {
		return true
	}
	first, last := at/pageSize, (at+uint64(n)-1)/pageSize
	var buf [entry * 16]byte
	for first <= last {
		k := min(last-first+1, uint64(len(buf)/entry))
		m, err := f.ReadAt(buf[:k*entry], int64(first*entry))
		if err != nil || m < int(k*entry) {
			return true // it says nothing of such memory
		}
		for i := range k {
			if binary.LittleEndian.Uint64(buf[i*entry:])>>present == 0 {
				return false
			}
		}
		first += k
	}
	return true
}

// pagemapFile opens /proc/PID/pagemap, once; nil where that can't be.
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
