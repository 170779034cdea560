//go:build linux && amd64

package tracee

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"kprobe/internal/procfs"
	"kprobe/symbols"

	"golang.org/x/sys/unix"
)

// unborn are the children of which the report waits to be handled: threads have
// stopped with it, and the tracer is at something else. The memory of a forked child is a
// copy of what its parent's was then. What the tracer writes into the parent's until the
// handler is told of the child is written into the child's, too: whoever makes the
// child clean finds what the parent has, and a journal that has changed is right for
// both.
//
// Its zero value has none. Writes come from any goroutine, the rest from the tracer's
// thread.
type unborn struct {
	some atomic.Int32 // len(list), read without mu at each write
	mu   sync.Mutex
	list map[*Thread]*copied
}

// copied is the memory of a child that a thread has made.
type copied struct {
	child int
	mem   *os.File // nil until something is written
	not   bool     // it is no copy, or can't be written to
}

// noteBirth records the child that the present stop of a thread tells of, if it does.
func (t *Thread) noteBirth() {
	switch t.status >> 16 {
	case unix.PTRACE_EVENT_CLONE, unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK:
	default:
		return
	}
	child, e := eventMessage(t.tid)
	if e != 0 {
		return // it is gone
	}
	u := &t.p.tr.unborn
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.list == nil {
		u.list = map[*Thread]*copied{}
	}
	u.list[t] = &copied{child: child}
	u.some.Store(int32(len(u.list)))
}

// born ends what noteBirth began, as the child is handled from here on; 0 is all
// that a thread has made.
func (u *unborn) born(th *Thread, child int) {
	if u.some.Load() == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for by, c := range u.list {
		if c.child == child && child != 0 || by == th && child == 0 {
			if c.mem != nil {
				_ = c.mem.Close() // it was open for writes that are done
			}
			delete(u.list, by)
		}
	}
	u.some.Store(int32(len(u.list)))
}

// write writes into the copies of a process's memory what was written into it. A copy
// that hasn't what is mapped there keeps what it has: it was made before.
func (u *unborn) write(p *Process, b []byte, at symbols.Addr) {
	if u.some.Load() == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for by, c := range u.list {
		if by.p != p && by.p.shares != p && p.shares != by.p && (p.shares == nil || by.p.shares != p.shares) {
			continue
		}
		if c.mem == nil && !c.not {
			c.open(by)
		}
		if c.mem != nil {
			_, _ = c.mem.WriteAt(b, int64(at)) // fails where the copy has nothing, or it was killed
		}
	}
}

func (c *copied) open(by *Thread) {
	c.not = true
	if isThread(by.p.pid, c.child) || sharesMemory(by.tid, c.child) {
		return
	}
	f, err := os.OpenFile(procfs.Image(c.child).Path("mem"), syscall.O_RDWR, 0)
	if err != nil {
		return
	}
	c.mem, c.not = f, false
}
