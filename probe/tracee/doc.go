//go:build linux && amd64

// Package tracee stops, reads, changes and resumes other processes. It is the only package that
// uses ptrace.
//
// A Tracer owns one OS thread, because ptrace binds a traced thread to the thread that traces
// it. Every ptrace call and every call of a Handler happens on that thread. Other goroutines
// get there with Tracer.Do. Unless its comment says otherwise, a method must be called on that
// thread: in a method of a Handler, or in a function given to Do.
//
// The package leaves no trace in the program. Threads are seized, not stopped. A system call
// that a stop interrupted is restarted. Signals reach the program as they were sent, in their
// order. Job control works. Injected system calls run from a context that returns to the
// thread's own even if the tracer is killed half-way. A process that vanishes is an answer
// (ErrGone), never a hang.
package tracee
