//go:build linux && amd64

package tracee

import "syscall"

// Steps of threads that block SIGTRAP
//
// The trap of a step is forced, as that of an int3 is (send_sigtrap in
// arch/x86/kernel/traps.c): if the thread blocks SIGTRAP, as in a handler that blocks
// all, the process loses its action on it. So the thread takes SIGTRAP while it is
// stepped. In states:
//
//	closed  the mask is the program's
//	open    a step is about to be made, or was: stepMask is the program's mask where
//	        that has SIGTRAP, which the thread's own hasn't then
//	stale   the instruction, a system call, may have set another mask, or a signal was
//	        delivered: it is looked at again before the next step
//
// Whoever kills the tracer in between leaves the thread a mask without SIGTRAP.

// openStep makes a step of the stopped thread safe for the process's action.
func (t *Thread) openStep() {
	if t.stepOpen {
		return
	}
	m, err := t.SigMask()
	if err != nil {
		return // gone
	}
	const trap = 1 << (syscall.SIGTRAP - 1)
	t.stepOpen = true
	switch {
	case m&trap != 0:
		if t.SetSigMask(m&^trap) == nil {
			t.stepMask = m
		}
	case m != t.stepMask&^trap:
		t.stepMask = 0 // the program has set it since
	}
}

// closeStep gives the stopped thread the mask that it had, if it has set no other.
func (t *Thread) closeStep() {
	t.stepOpen = false
	if t.stepMask == 0 {
		return
	}
	if m, err := t.SigMask(); err == nil && m == t.stepMask&^sigBit(syscall.SIGTRAP) {
		_ = t.SetSigMask(t.stepMask) // fails only if the thread is gone
	}
	t.stepMask = 0
}

// setsMask reports whether code begins with a system call, which may set a mask.
func setsMask(code []byte) bool { return len(code) > 1 && code[0] == 0x0f && code[1] == 0x05 }
