// Package threads knows about a process's threads what their hits need: their numbers here and
// in their own pid namespace, and their names, also of threads that have ended. It reads /proc.
package threads

import (
	"sync"
	"time"

	"kprobe/internal/procfs"
)

// Numbers translates between the numbers that the threads of a process have on
// this side and those in its own pid namespace (pid_namespaces(7)): what a
// thread's control block holds and gettid answers is the latter, what is printed
// and what /proc and ptrace take is the former. A nil *Numbers is of a process
// in the namespace of this side's /proc, where both are the same.
//
// It may be used by several goroutines.
type Numbers struct {
	proc procfs.Task

	mu      sync.Mutex
	here    map[uint32]int // by the number there
	there   map[int]uint32
	scanned time.Time // when the threads were last listed
}

// scanAgain is how long a number that no thread has isn't looked for again.
const scanAgain = 100 * time.Millisecond

// NumbersOf gives the numbers of a process, nil if they need no translation.
func NumbersOf(pid int) *Numbers {
	proc := procfs.Process(pid)
	st, _ := proc.Status()
	if _, nested := st.InnerNumber(); !nested {
		return nil
	}
	n := &Numbers{proc: proc, here: map[uint32]int{}, there: map[int]uint32{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.scan()
	return n
}

// scan learns the numbers of all threads. The lock is held.
func (n *Numbers) scan() {
	n.scanned = time.Now()
	tids, _ := n.proc.Threads() // none of a process that is gone
	for _, tid := range tids {
		n.look(tid)
	}
}

// look learns a thread's number. The lock is held.
func (n *Numbers) look(tid int) {
	st, _ := n.proc.Thread(tid).Status()
	if v, ok := st.InnerNumber(); ok {
		n.here[v], n.there[tid] = tid, v
	}
}

// Learn takes note of a thread that has just been born, or is not known yet.
func (n *Numbers) Learn(tid int) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look(tid)
}

// Outside gives the number on this side of the thread whose number there is
// tid; a thread that nobody has seen keeps that one.
func (n *Numbers) Outside(tid uint32) int {
	if n == nil {
		return int(tid)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.here[tid]; !ok && time.Since(n.scanned) > scanAgain {
		n.scan()
	}
	if v, ok := n.here[tid]; ok {
		return v
	}
	return int(tid)
}

// Inside gives the number there of a thread of this side.
func (n *Numbers) Inside(tid int) uint32 {
	if n == nil {
		return uint32(tid)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.there[tid]; !ok {
		n.look(tid)
	}
	if v, ok := n.there[tid]; ok {
		return v
	}
	return uint32(tid)
}
