//go:build linux && amd64

package tracee

import (
	"cmp"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"kprobe/internal/procfs"
	"kprobe/symbols"

	"golang.org/x/sys/unix"
)

// unborn are the children whose report waits to be handled: a thread has stopped with it, but
// the tracer is busy with something else. The memory of a forked child is a copy of its
// parent's at that time. Until the handler is told of the child, whatever the tracer writes
// into the parent's memory is written into the child's, too. So whoever cleans the child finds
// what the parent has, and a journal that has changed is right for both.
//
// The zero value is empty. Any goroutine may write; everything else is for the tracer's thread.
type unborn struct {
	some atomic.Int32 // len(list), read without mu at each write
	mu   sync.Mutex
	list map[int]*copied // by the child's id
}

// copied is the memory of a child that a thread has made.
type copied struct {
	by  *Thread
	mem *os.File // nil until something is written
	not bool     // the memory is no copy, or can't be written to
}

// noteBirth records the child that the present stop of a thread reports, if it reports one.
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
		u.list = map[int]*copied{}
	}
	u.list[child] = &copied{by: t}
	u.some.Store(int32(len(u.list)))
}

// born ends what noteBirth began: the child is handled from here on.
func (u *unborn) born(child int) {
	u.drop(func(id int, _ *copied) bool { return id == child })
}

// forget ends what noteBirth began for a thread that is gone.
func (u *unborn) forget(th *Thread) {
	u.drop(func(_ int, c *copied) bool { return c.by == th })
}

func (u *unborn) drop(goes func(id int, c *copied) bool) {
	if u.some.Load() == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, c := range u.list {
		if goes(id, c) {
			if c.mem != nil {
				_ = c.mem.Close() // the writes are done
			}
			delete(u.list, id)
		}
	}
	u.some.Store(int32(len(u.list)))
}

// write repeats in the copies a write into the process's memory. If a copy lacks the mapping,
// it was made before that, and stays as it is.
func (u *unborn) write(p *Process, b []byte, at symbols.Addr) {
	if u.some.Load() == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for child, c := range u.list {
		if cmp.Or(c.by.p.shares, c.by.p) != cmp.Or(p.shares, p) {
			continue
		}
		if c.mem == nil && !c.not {
			c.open(child)
		}
		if c.mem != nil {
			_, _ = c.mem.WriteAt(b, int64(at)) // fails if the copy lacks the mapping, or the child was killed
		}
	}
}

// open opens the memory of a child that has a copy.
func (c *copied) open(child int) {
	c.not = true
	if isThread(c.by.p.pid, child) || sharesMemory(c.by.tid, child) {
		return
	}
	f, err := os.OpenFile(procfs.Image(child).Path("mem"), syscall.O_RDWR, 0)
	if err != nil {
		return
	}
	c.mem, c.not = f, false
}
