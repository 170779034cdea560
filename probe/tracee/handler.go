//go:build linux && amd64

package tracee

import (
	"syscall"

	"kprobe/symbols"
)

// Verdict is what a Handler wants done with the stopped thread.
type Verdict uint8

// The verdicts.
const (
	// Resume lets the thread continue. A signal that stopped it is dropped.
	Resume Verdict = iota
	// Step lets the thread execute one instruction and then calls Stepped. If the verdict
	// is about a signal, the signal is kept and delivered, with its siginfo intact, after
	// the first Stepped whose verdict isn't Step. A fault (Siginfo.Synchronous) is dropped
	// instead: the Handler has answered it and moved the thread, or its instruction raises
	// it again. A pushf doesn't store the trap flag that stepping needs.
	//
	// If the tracer is killed in the middle, the thread gets a SIGTRAP with the code
	// TRAP_TRACE, and a program without a handler for it dies. The kernel itself clears the
	// flag when it calls the handler.
	Step
	// Deliver lets the signal that stopped the thread reach the program.
	Deliver
	// Stay leaves the thread stopped until Thread.Resume.
	Stay

	// NotMine is the Breakpoint verdict for a trap that is the program's own: the program
	// gets its SIGTRAP. If there is no int3 in memory at the address any more (it was
	// removed after the thread hit it), the thread goes back to the instruction instead.
	NotMine = Deliver
)

// ForkKind says how a new process came to be.
type ForkKind uint8

// The kinds of fork.
const (
	// Fork is a child with its own copy of the memory.
	Fork ForkKind = iota
	// VFork is a child that shares the memory until it executes a program or ends. The
	// parent's thread waits for that (vfork, posix_spawn).
	VFork
	// CloneVM is a child that shares the memory while the parent runs on.
	CloneVM
)

// Handler is told what happens to the traced processes. All methods are called on the tracer's
// thread while the thread concerned is stopped; other threads run on. Methods may call
// everything in Thread, Process and Tracer except Run.
type Handler interface {
	// Breakpoint is called for a SIGTRAP that an int3 raised. The instruction pointer is
	// after the int3. Registers may be read and changed.
	Breakpoint(t *Thread) Verdict
	// Stepped follows the verdict Step, once the instruction has been executed. A fault of
	// the instruction comes as Signal instead and ends the step, unless the verdict there
	// is Step again.
	Stepped(t *Thread) Verdict
	// Signal is called for any other signal that is about to be delivered to t.
	Signal(t *Thread, si *Siginfo) Verdict
	// NewThread is called before the thread's first instruction. It isn't called for
	// threads found by Attach, nor for the first thread of a process.
	NewThread(t *Thread)
	// Fork is called with the child stopped before its first instruction. The child's
	// memory may be changed. The parent stays stopped meanwhile, unless Fork calls its
	// LetRun. If follow is false, a child with memory of its own is detached after the
	// call. A child that shares the parent's memory can hit the parent's breakpoints. If it
	// is not followed, it stays traced until it executes a program or ends. Its Breakpoint,
	// Stepped and Signal events come with a Thread whose Process().SharesMemory() is the
	// parent's process. Exec, ThreadExit and Exited are not called for it.
	Fork(parent *Thread, child *Process, kind ForkKind) (follow bool)
	// Exec is called before the first instruction of the new program. The old
	// image and all other threads are gone.
	Exec(p *Process)
	// ThreadExit is called when t is about to end. Its registers can still be read, unless
	// it was killed.
	ThreadExit(t *Thread)
	// Exited is called once the process is gone.
	Exited(p *Process, status syscall.WaitStatus)
}

// TrapKnower is a Handler that can tell an int3 by its address.
type TrapKnower interface {
	Handler
	// KnowsTrap reports whether a thread that stopped with a SIGTRAP, with its instruction
	// pointer after at, must have executed an int3 of the handler's there, because no
	// instruction of the program begins after that byte. It is called before Breakpoint,
	// and saves reading the signal's siginfo.
	KnowsTrap(t *Thread, at symbols.Addr) bool
}

// Resumer is a Handler that is told when a thread is no longer stepped.
type Resumer interface {
	Handler
	// Resumed is called when t, which a verdict Step had stepped, has left the stop that
	// ended the step. If the tracer is killed before that, the thread gets the SIGTRAP of
	// its step. t is running.
	Resumed(t *Thread)
}

// OrphanKeeper is a Handler that puts orphans in order.
type OrphanKeeper interface {
	Handler
	// Orphan is called with a process, stopped before its first instruction, that a traced
	// process made which is gone and had not reported it. Its memory is a copy, including
	// breakpoints, or the memory of the process that is gone. The orphan is let go after
	// the call. ThreadExit and Exited are not called for it.
	Orphan(child *Process)
}
