//go:build linux && amd64

package tracee

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// blockedAt reads where a thread waits. ok is false if it runs, has ended, or the kernel
// doesn't tell.
func blockedAt(pid, tid int) (at procfs.Position, ok bool) {
	at, err := procfs.Thread(pid, tid).Position()
	return at, err == nil && !at.Running
}

// AwaitsChild reports whether a thread waits for a child that uses its memory to end or to
// execute a program. It can't be stopped before that.
func (t *Thread) AwaitsChild() bool {
	b, ok := blockedAt(t.p.pid, t.tid)
	if !ok {
		return false
	}
	switch b.Nr {
	case unix.SYS_VFORK:
		return true
	case unix.SYS_CLONE:
		return b.Args[0]&unix.CLONE_VFORK != 0
	case unix.SYS_CLONE3:
		var flags [8]byte // the first member of struct clone_args
		_, err := t.p.ReadMemory(flags[:], symbols.Addr(b.Args[0]))
		return err == nil && binary.LittleEndian.Uint64(flags[:])&unix.CLONE_VFORK != 0
	}
	return false
}

// executes reports whether a thread that waits in the kernel is executing a program: the
// process's other threads must end first.
func (t *Thread) executes() bool {
	b, ok := blockedAt(t.p.pid, t.tid)
	return ok && (b.Nr == unix.SYS_EXECVE || b.Nr == unix.SYS_EXECVEAT)
}

// inExec reports whether a thread of the process is executing a program.
func (p *Process) inExec() bool {
	for _, t := range p.threads {
		if !t.stopped && !t.gone && taskState(p.pid, t.tid) == 'D' && t.executes() {
			return true
		}
	}
	return false
}

// WaitsAt returns the instruction at which a thread that did not stop will enter the program
// again when its wait in the kernel is over. It stops before it executes that instruction. ok
// is false if the thread does not wait, or is gone.
func (t *Thread) WaitsAt() (pc symbols.Addr, ok bool) {
	if t.gone || t.stopped {
		return 0, false
	}
	if taskState(t.p.pid, t.tid) != 'D' {
		return 0, false
	}
	b, ok := blockedAt(t.p.pid, t.tid)
	return symbols.Addr(b.PC), ok
}

// Late returns the threads that are not stopped while others are; in the prepare function of
// Detach, those that could not be stopped. A thread that has ended is not among them, as a
// process's first thread may have before the others.
func (p *Process) Late() []*Thread {
	var late []*Thread
	for _, t := range p.Threads() {
		if !t.stopped && !t.gone && !hasEnded(taskState(p.pid, t.tid)) {
			late = append(late, t)
		}
	}
	return late
}
