//go:build linux && amd64

package tracee

import (
	"cmp"
	"errors"
	"syscall"

	"kprobe/internal/procfs"

	"golang.org/x/sys/unix"
)

// created handles the stop of a thread that has made another thread or process. The new one is
// already traced, and stops before its first instruction. Its stop may be reported before or
// after this one.
//
// created leaves th stopped, unless the handler lets it run (LetRun).
func (t *Tracer) created(th *Thread, event int) error {
	tid, e := eventMessage(th.tid)
	if e != 0 {
		return th.failed("geteventmsg", e)
	}
	defer t.unborn.born(tid)
	p := th.p
	if event == unix.PTRACE_EVENT_CLONE && isThread(p.pid, tid) {
		if t.threads[tid] == nil {
			nt := p.newThread(tid)
			nt.trapMask = th.trapMask
			t.adopt(nt)
		}
		return nil
	}
	if t.procs[tid] != nil {
		return nil // taken for an orphan before this event came
	}
	st, ok := t.claim(tid)
	if !ok {
		// The child is on its way to its first stop.
		var w uint32
		n, e := t.waitFor(tid, &w)
		st = syscall.WaitStatus(w)
		if e != 0 || n != tid || !st.Stopped() {
			return nil // killed at birth
		}
	}
	return t.born(th, tid, st, event)
}

// born registers a process that th has made, at its first stop.
func (t *Tracer) born(th *Thread, tid int, st syscall.WaitStatus, event int) error {
	p := th.p
	child := t.newProcess(tid)
	first := child.newThread(tid)
	first.announced = true
	first.trapMask = th.trapMask
	first.note(st)
	kind := Fork
	if sharesMemory(th.tid, tid) {
		child.shares = cmp.Or(p.shares, p)
		child.watches = p.watches
		kind = CloneVM
		if event == unix.PTRACE_EVENT_VFORK {
			kind = VFork
		}
	}
	t.unborn.born(tid)
	first.busy = true // a ResumeAll in the handler doesn't let it go
	follow := t.handler != nil && t.handler.Fork(th, child, kind)
	first.busy = false
	switch {
	case first.gone || !first.stopped:
		// The handler detached it.
	case follow:
		if err := t.handle(first); err != nil {
			return err
		}
	case child.shares != nil:
		child.silent = true
		if err := t.handle(first); err != nil {
			return err
		}
	default:
		first.settleStop()
		first.closeTrap(0)
		// A killed child needs no detaching.
		_ = first.request(unix.PTRACE_DETACH, 0)
		t.drop(child)
	}
	return nil
}

// LetRun resumes the thread that has made a process before Fork has returned, for a handler that takes long with the
// child. If the thread must stay where it is, because its process is being stopped or left, LetRun does nothing. It is for
// Fork alone, on the tracer's thread.
func (t *Thread) LetRun() error {
	if !t.mayLeave || !t.Stopped() {
		return nil
	}
	t.mayLeave, t.busy = false, false
	if err := t.cont(0); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// adopt takes the first stop of a new thread, if it was already reported.
func (t *Tracer) adopt(th *Thread) {
	if st, ok := t.claim(th.tid); ok {
		th.note(st)
		th.deferred = true
		t.queue = append(t.queue, th)
	}
}

// waitFor waits for the next status of one thread. Signals to this process don't interrupt it.
func (t *Tracer) waitFor(tid int, st *uint32) (int, syscall.Errno) {
	for {
		n, e := wait(tid, st, 0)
		if e != syscall.EINTR {
			return n, e
		}
	}
}

// isThread reports whether tid is a thread of pid.
func isThread(pid, tid int) bool {
	return unix.Access(string(procfs.Thread(pid, tid)), unix.F_OK) == nil
}

// sharesMemory reports whether two processes have the same memory.
func sharesMemory(a, b int) bool {
	same, known := compareMemory(a, b)
	return known && same
}

// SameMemory reports whether two processes, or threads, run in the same memory.
func SameMemory(a, b int) bool { return sharesMemory(a, b) }

// compareMemory reports whether two processes have the same memory. known is false if the
// kernel doesn't tell.
func compareMemory(a, b int) (same, known bool) {
	const kcmpVM = 1 // KCMP_VM of include/uapi/linux/kcmp.h
	n, _, e := syscall.RawSyscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	return n == 0, e == 0
}

// executed handles the stop of a thread that has executed a new program. It now has the
// process's id, whichever thread it was, and all others have ended. executed leaves th stopped,
// or detached.
func (t *Tracer) executed(th *Thread) error {
	p := th.p
	for _, other := range p.Threads() {
		if other != th {
			t.exiting(other)
			t.forget(other)
		}
	}
	th.held, th.owed, p.decisions = nil, nil, nil
	th.stepping = false
	th.exitSeen = false
	th.rseq = 0
	th.commAt = th.commAt.Add(-commFor)
	p.closeMem()
	p.code, p.frame = 0, 0
	p.watches, th.watches = nil, nil // the kernel has cleared them
	p.trap.close()
	th.closeTrap(0)
	if p.silent {
		if err := th.request(unix.PTRACE_DETACH, 0); err != nil {
			return err
		}
		t.drop(p)
		return nil
	}
	p.shares = nil
	p.bequeath()
	if t.handler != nil {
		t.handler.Exec(p)
	}
	return nil
}

// exiting tells the handler once that a thread ends.
func (t *Tracer) exiting(th *Thread) {
	if th.exitSeen {
		return
	}
	th.exitSeen = true
	if !th.p.silent && t.handler != nil && th.announced {
		t.handler.ThreadExit(th)
	}
}

// ended handles the end of a thread or process.
func (t *Tracer) ended(tid int, th *Thread, st syscall.WaitStatus) {
	t.claim(tid)
	if th == nil {
		t.noteReaped(tid, st)
		return
	}
	delete(t.children, tid)
	p := th.p
	t.exiting(th)
	t.forget(th)
	if tid == p.pid || len(p.threads) == 0 {
		// The last of a process whose leader had ended before we attached: the
		// leader's end is reported to its parent alone.
		t.takeOrphans(th, st)
		t.processGone(p, st)
	}
}

// processGone drops a process and tells the handler.
func (t *Tracer) processGone(p *Process, st syscall.WaitStatus) {
	for _, th := range p.Threads() {
		t.exiting(th)
	}
	t.drop(p)
	if !p.silent && t.handler != nil {
		t.handler.Exited(p, st)
	}
}
