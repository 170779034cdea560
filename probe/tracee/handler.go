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
	// Resume lets the thread run on. A signal that stopped it is dropped.
	Resume Verdict = iota
	// Step lets the thread execute one instruction and then calls Stepped.
	// The signal that a Signal call was about is kept and delivered, with its
	// siginfo intact, after the first Stepped whose verdict isn't Step. A
	// pushf doesn't store the trap flag that this needs.
	//
	// A tracer killed in the middle leaves the thread a SIGTRAP with the code
	// TRAP_TRACE: a program without a handler for it dies. The flag itself is
	// taken away by the kernel when it calls the handler.
	Step
	// Deliver lets the signal that stopped the thread reach the program.
	Deliver
	// Stay leaves the thread stopped until Thread.Resume.
	Stay

	// NotMine is the Breakpoint verdict for a trap that is the program's own:
	// the program gets its SIGTRAP. Where no int3 is in memory any more at
	// the address (it was removed after the thread had hit it), the thread
	// goes back to the instruction instead.
	NotMine = Deliver
)

// ForkKind says how a new process came to be.
type ForkKind uint8

// The kinds of fork.
const (
	// Fork is a child with its own copy of the memory.
	Fork ForkKind = iota
	// VFork is a child that shares the memory until it executes a program or
	// ends, with the parent's thread waiting for that (vfork, posix_spawn).
	VFork
	// CloneVM is a child that shares the memory while the parent runs on.
	CloneVM
)

// Handler is told what happens to the traced processes. All methods are
// called on the tracer's thread while the thread concerned is stopped; other
// threads run on. Methods may call everything that Thread, Process and Tracer
// offer, Run excepted.
type Handler interface {
	// Breakpoint is a SIGTRAP that an int3 raised; the instruction pointer is
	// behind the int3. Registers may be read and changed.
	Breakpoint(t *Thread) Verdict
	// Stepped follows a verdict Step, once the instruction has been executed.
	// A fault in the instruction comes as Signal instead and ends the step,
	// unless the verdict there is Step again.
	Stepped(t *Thread) Verdict
	// Signal is any other signal about to be delivered to t.
	Signal(t *Thread, si *Siginfo) Verdict
	// NewThread is called before the thread's first instruction. Threads
	// found by Attach and the first thread of a process come without it.
	NewThread(t *Thread)
	// Fork is called with the child stopped before its first instruction; its
	// memory may be changed. If follow is false a child with memory of its own
	// is detached after the call. A child that shares the parent's memory can
	// hit the parent's breakpoints; not followed, it stays traced until it
	// executes a program or ends, its Breakpoint, Stepped and Signal events
	// come with a Thread whose Process().SharesMemory() is the parent's
	// process, and neither Exec, ThreadExit nor Exited is called for it.
	Fork(parent *Thread, child *Process, kind ForkKind) (follow bool)
	// Exec is called before the first instruction of the new program. The old
	// image and all other threads are gone.
	Exec(p *Process)
	// ThreadExit is called while t is about to end; its registers can still
	// be read unless it was killed.
	ThreadExit(t *Thread)
	// Exited is called once the process is gone.
	Exited(p *Process, status syscall.WaitStatus)
}

// TrapKnower is a Handler that can tell an int3 by its address.
type TrapKnower interface {
	Handler
	// KnowsTrap reports whether a thread that stopped with a SIGTRAP behind
	// at must have executed an int3 of the handler's there, since no
	// instruction of the program begins behind that byte. It is called before
	// Breakpoint, and spares the look at the signal's siginfo.
	KnowsTrap(t *Thread, at symbols.Addr) bool
}

// Resumer is a Handler that is told when a thread steps no more.
type Resumer interface {
	Handler
	// Resumed is called when t, which a verdict Step had stepped, has left the stop
	// at which that was over: a tracer that is killed before leaves it the SIGTRAP of
	// its step. t runs.
	Resumed(t *Thread)
}

// OrphanKeeper is a Handler that puts orphans in order.
type OrphanKeeper interface {
	Handler
	// Orphan is called with a process, stopped before its first instruction,
	// that a traced one made which is gone and had not reported it. Its memory
	// is a copy, breakpoints included, or that of a process that is gone. It is
	// let go after the call; neither ThreadExit nor Exited is called for it.
	Orphan(child *Process)
}
