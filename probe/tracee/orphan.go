//go:build linux && amd64

package tracee

import (
	"syscall"
	"time"

	"kprobe/internal/procfs"

	"golang.org/x/sys/unix"
)

// A process that is killed during a fork never reports the child. But the child lives, is traced, and
// waits in its first stop, and the kernel doesn't say whose child it is. So when a process ends that
// may have been in this state, the tracer adopts the children that were not reported and have no
// traced parent. A child that shows up even later is let go, after the Handler has put it in order.

// orphanAfter is how long the first stop of a process may wait for the report of the thread
// that made it.
const orphanAfter = time.Second

// takeOrphans presents to the handler, as forked by the ended thread th, the new processes
// whose parent isn't traced.
func (t *Tracer) takeOrphans(th *Thread, st syscall.WaitStatus) {
	if st.Signaled() || th.p.threaded {
		t.collectBorn()
	}
	for tid, st := range t.early {
		if st>>16 != unix.PTRACE_EVENT_STOP || !t.parentless(tid, th.p.pid) {
			continue
		}
		t.claim(tid)
		// It fails only if the child is gone as well.
		_ = t.born(th, tid, st, unix.PTRACE_EVENT_FORK)
	}
}

// collectBorn takes the first stops of all processes that are traced by birth and were not
// reported yet.
func (t *Tracer) collectBorn() {
	pids, _ := procfs.Processes()
	for _, pid := range pids {
		if t.threads[pid] != nil || t.children[pid] {
			continue
		}
		if _, ok := t.early[pid]; ok {
			continue
		}
		if st, err := procfs.Process(pid).Status(); err != nil || st.Int("TracerPid") != t.tid {
			continue
		}
		var w uint32
		if n, e := t.waitFor(pid, &w); e == 0 && n == pid && syscall.WaitStatus(w).Stopped() {
			t.early[pid] = syscall.WaitStatus(w)
		}
	}
}

// parentless reports whether tid is a process, not a thread, whose parent is not traced or is
// the process ended.
func (t *Tracer) parentless(tid, ended int) bool {
	st, err := procfs.Process(tid).Status()
	if err != nil || st.Int("Tgid") != tid {
		return false
	}
	parent := st.Int("PPid")
	return t.procs[parent] == nil || parent == ended
}

// claim takes the first stop of a thread or process that was reported before its creation.
func (t *Tracer) claim(tid int) (st syscall.WaitStatus, ok bool) {
	st, ok = t.early[tid]
	delete(t.early, tid)
	if watch := t.orphans[tid]; watch != nil {
		watch.Stop()
		delete(t.orphans, tid)
	}
	return st, ok
}

// watchOrphan lets a process go if nobody has claimed its first stop in time.
func (t *Tracer) watchOrphan(tid int) {
	var watch *time.Timer
	watch = time.AfterFunc(orphanAfter, func() {
		// After Close there is nothing to let go.
		_ = t.Do(func() error {
			if t.orphans[tid] != watch {
				return nil // claimed, while this waited for its turn
			}
			delete(t.orphans, tid)
			st := t.early[tid]
			switch {
			case !t.running || t.birthPending():
				t.watchOrphan(tid)
			case t.parentless(tid, 0):
				t.claim(tid)
				child := t.newProcess(tid)
				first := child.newThread(tid)
				first.note(st)
				first.settleStop()
				if k, ok := t.handler.(OrphanKeeper); ok {
					first.busy = true
					k.Orphan(child)
					first.busy = false
				}
				if !first.Stopped() {
					break // the handler detached it, or it was killed
				}
				// A killed child needs no detaching.
				if err := first.writeBack(); err == nil {
					_ = first.request(unix.PTRACE_DETACH, 0)
				}
				t.drop(child)
			}
			return nil
		})
	})
	if before := t.orphans[tid]; before != nil {
		before.Stop()
	}
	t.orphans[tid] = watch
}

// birthPending reports whether a thread's report of a new process or thread waits to be
// handled.
func (t *Tracer) birthPending() bool {
	for _, th := range t.threads {
		switch th.status >> 16 {
		case unix.PTRACE_EVENT_CLONE, unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK:
			if th.stopped {
				return true
			}
		}
	}
	return false
}
