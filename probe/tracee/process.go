//go:build linux && amd64

package tracee

import (
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kprobe/symbols"
)

// Process is a traced process. Any goroutine may call PID, Gone, ReadMemory and SharesMemory,
// the methods that take a context, and ResumeAll; the latter two reach the tracer's thread by
// Do. Everything else must be called on that thread.
type Process struct {
	pid  int
	tr   *Tracer
	gone atomic.Bool

	threads map[int]*Thread
	held    int       // depth of StopAll
	since   time.Time // when held was last 0
	shares  *Process  // the process whose memory a vfork or CLONE_VM child uses; nil: its own
	silent  bool      // it is such a child, and not followed
	leaving bool      // its threads are detached as they stop
	// detaching says that all threads are stopped, and prepare runs for the last time.
	detaching bool
	// parting says that the process is kept after its last thread is left (Part). parted says
	// that nobody traces it.
	parting, parted bool
	start           uint64 // its start time, read when it was parted with
	fd              pidfd  // opened when it was first parted with

	decisions []decision // on signals that come again

	strays int // number of traps of another tracer's steps to drop
	// strayWatches drops the traps of another tracer's debug registers.
	strayWatches bool
	// keepsTraps keeps SIGTRAP out of the threads' masks (KeepTrapsOpen).
	keepsTraps bool
	threaded   bool // it has had more than one thread

	memMu     sync.Mutex
	mem       *os.File // /proc/PID/mem
	pagemap   *os.File // /proc/PID/pagemap
	noPagemap bool     // it can't be opened
	absent    absentees

	watches     *WatchSet    // the memory that its threads must watch; nil: none
	code, frame symbols.Addr // the scratch areas; 0 is none yet
	trap        trapGuard
}

// PID returns the thread group's id in the tracer's PID namespace.
func (p *Process) PID() int { return p.pid }

// Gone reports whether the process has ended or was detached.
func (p *Process) Gone() bool { return p.gone.Load() }

// SharesMemory returns the process whose memory a vfork or CLONE_VM child uses; nil if the
// memory is its own.
func (p *Process) SharesMemory() *Process { return p.shares }

// Tracer returns the tracer of the process.
func (p *Process) Tracer() *Tracer { return p.tr }

// Threads returns the threads in the order of their ids.
func (p *Process) Threads() []*Thread {
	ts := make([]*Thread, 0, len(p.threads))
	for _, t := range p.threads {
		ts = append(ts, t)
	}
	sort.Slice(ts, func(i, j int) bool { return ts[i].tid < ts[j].tid })
	return ts
}

// Thread returns the thread with that id; nil if there is none.
func (p *Process) Thread(tid int) *Thread { return p.threads[tid] }

func (t *Tracer) newProcess(pid int) *Process {
	p := &Process{pid: pid, tr: t, threads: map[int]*Thread{}}
	t.procs[pid] = p
	return p
}

func (p *Process) newThread(tid int) *Thread {
	th := &Thread{tid: tid, p: p}
	p.threads[tid] = th
	p.threaded = p.threaded || len(p.threads) > 1
	p.tr.threads[tid] = th
	return th
}

// forget drops a thread from the tables.
func (t *Tracer) forget(th *Thread) {
	th.kept = false
	th.gone = true
	t.unborn.forget(th)
	th.stopped = false
	delete(th.p.threads, th.tid)
	if t.threads[th.tid] == th {
		delete(t.threads, th.tid)
	}
}

// drop drops a process from the tables.
func (t *Tracer) drop(p *Process) {
	for _, th := range p.threads {
		t.forget(th)
	}
	if t.procs[p.pid] == p {
		delete(t.procs, p.pid)
	}
	if t.parted[p.pid] == p {
		delete(t.parted, p.pid)
	}
	p.parted, p.parting = false, false
	p.fd.close()
	p.gone.Store(true)
	p.trap.close()
	p.closeMem()
	p.bequeath()
}

func (p *Process) closeMem() {
	p.memMu.Lock()
	defer p.memMu.Unlock()
	if p.mem != nil {
		p.mem.Close()
		p.mem = nil
	}
	if p.pagemap != nil {
		p.pagemap.Close()
		p.pagemap = nil
	}
	p.noPagemap = false
}

// Kill sends SIGKILL to the process.
func (p *Process) Kill() error { return syscall.Kill(p.pid, syscall.SIGKILL) }
