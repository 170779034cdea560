// Package probe is the kernel's kprobes for processes: it puts probes into a
// running x86-64 Linux program and takes them out again, without harm to the
// program, and tells what they saw.
//
// A Session is a set of probes in a set of processes. Attach begins one on
// running processes, Start on a command. Run lets the program run and serves
// the hits, until the context is cancelled or the program has ended; Close takes
// everything out and leaves the program as it was. In between, probes come and
// go at any time, from any goroutine.
//
// There are two ways to say what is to be probed:
//
// Definitions, in the language of the kernel's kprobe_events (package fetch):
// Add gives a Link, by which their events are looked at, switched and taken out.
// Each hit becomes a record, written by the program itself where the probe is a jump,
// and comes to the Sink of Run.
//
// Probes with handlers, in the words of the kernel's kprobes.h: Register,
// RegisterAll, Unregister, EnableProbe, DisableProbe.
//
//   - A Kprobe is at an instruction. Its PreHandler runs before the instruction,
//     its PostHandler after it, its FaultHandler if it faults.
//   - A Kretprobe is at a function's return. Its EntryHandler runs at the entry,
//     its Handler at the return; a KretprobeInstance joins the two.
//   - A Jprobe is at a function's entry, and calls a Go function of the same
//     signature with the arguments.
//
// Handlers of the first two run while the thread that hit the probe is stopped.
// They see its registers as Regs, read and write its memory, and what they
// change is changed: an argument, a result, where the thread goes on. Such a
// probe is a breakpoint, at some 15 to 60 microseconds a hit. A Jprobe without
// a *Regs stays a jump, at some tens of nanoseconds for the program: the values
// are recorded at the hit, and the function is called later.
//
// A probe without handlers counts. Stats and NMissed tell the counts, which are
// exact: what was hit was recorded, filtered or lost.
//
// # What blocks
//
// Methods with a context wait for the program: until its threads stand still where its
// text is changed. They end with the context, but what has begun is finished or undone.
// Methods without one wait for the thread that traces, for as long as it takes over one
// event; Stats and Events take a lock, and wait for nobody else. Sinks, handlers and the
// functions of Options may hold hits up, and never the program, but for handlers of a
// Kprobe or Kretprobe.
//
// # What it does to the process that it is in
//
// A session traces from a thread of its own, which it moves to the CPU of the thread that
// stops most. The process gets no SIGCHLD for children that stop (SA_NOCLDSTOP), and
// signal 51 interrupts system calls of the thread that traces; both stay so. No other
// thread is touched.
//
// Where a traced process is a child of this one, two things hold. Nobody else may wait for
// it while it is traced, as exec.Cmd.Wait does: that would take the session's stops. And
// the session reaps it if it ends meanwhile; how a command of Start has ended,
// Session.CommandStatus tells.
//
// # Errors
//
// Each error that a caller can tell apart is a type or a variable of this package, of
// package fetch (a definition's text) or of package symbols (names, files). Methods name
// theirs. Close is to be called also after an error.
//
// ARCHITECTURE.md says how all this works, and holds the kernel's document of
// kprobes against it, line by line.
package probe
