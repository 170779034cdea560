//go:build linux && amd64

package tracee

import (
	"time"

	"golang.org/x/sys/unix"
)

// advance takes a thread from the stop of an event inside a system call (clone, fork, exec),
// whose return would still overwrite rax, to the stop before its next instruction. Calls can be
// injected from there. The event must have been handled. advance returns false if the thread
// ended, or met another event on the way, which then waits to be handled.
func (t *Thread) advance() bool {
	t.interrupt()
	if err := t.writeBack(); err != nil {
		return false
	}
	if e := ptrace(unix.PTRACE_CONT, t.tid, 0, 0); e != 0 {
		return false
	}
	t.stopped = false
	deadline := time.Now().Add(stopPatience)
	for !t.stopped && !t.gone && time.Now().Before(deadline) {
		cancel := t.p.tr.wakeAt(stopGrace)
		if !t.p.tr.poll(t, 0) && t.AwaitsChild() {
			t.p.serveSharers()
		}
		cancel()
	}
	if !t.stopped || t.gone {
		return false
	}
	if t.status>>16 == unix.PTRACE_EVENT_STOP {
		return true
	}
	t.p.tr.queue = append(t.p.tr.queue, t)
	return false
}

// serveSharers handles the events of children that use the process's memory. A thread of the
// process may be waiting for one of them.
func (p *Process) serveSharers() {
	t := p.tr
	if t.handler == nil {
		return
	}
	for _, q := range p.Sharers() {
		for _, th := range q.Threads() {
			polled := !th.stopped && t.poll(th, unix.WNOHANG)
			switch {
			case !th.Stopped() || th.busy || q.held > 0:
			case th.deferred:
				// It fails only if the child is gone, or beyond help.
				_ = t.handle(th)
			case polled:
				// The stop that somebody asked for and gave up waiting for: it has
				// no event that would let the thread go on. If it is gone, that
				// will be reported.
				_ = th.deliver(false)
			}
		}
	}
}

// passEvent handles the pending event of a thread if it is the creation of a thread or process,
// and advances the thread. An event that needs a Handler waits for Run.
func (t *Thread) passEvent() bool {
	ev := int(t.status >> 16)
	switch ev {
	case unix.PTRACE_EVENT_CLONE, unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK:
	default:
		return false
	}
	switch {
	case t.busy:
		return false
	case !t.deferred:
		return t.p.detaching && t.advance() // detach has settled it
	case ev != unix.PTRACE_EVENT_CLONE && t.p.tr.handler == nil:
		return false
	}
	t.deferred = false
	if err := t.p.tr.created(t, ev); err != nil || !t.Stopped() {
		return false
	}
	return t.advance()
}
