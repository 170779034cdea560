//go:build linux && amd64

// Package tracee stops, reads, changes and resumes other processes. It is the
// only place with ptrace.
//
// A Tracer owns one operating system thread, since ptrace ties a traced thread
// to the thread that traces it. Every ptrace call and every call of a Handler
// happens there; other goroutines reach it by Tracer.Do. Unless a method says
// otherwise it must be called on that thread: in a Handler's method, or in a
// function given to Do.
//
// The layer leaves no trace in the program: threads are seized, not stopped; a
// system call that a stop interrupted is restarted; signals reach the program
// as they were sent, in their order; job control works; and injected system
// calls run from a context that returns to the thread's own even if the tracer
// is killed half-way. A process that vanishes is an answer (ErrGone), never a
// hang.
package tracee
