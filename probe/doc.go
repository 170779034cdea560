// Package probe brings the kernel's kprobes to processes. It puts probes into a running x86-64
// Linux program, reports what they see, and removes them again, without harm to the program.
//
// A [Session] is a set of probes in a set of processes:
//
//	s, err := probe.Attach(ctx, pids, probe.Options{})   // or Start, for a command
//	link, err := s.Add(ctx, defs)                        // or Register, for probes with handlers
//	summary, err := s.Run(ctx, sink)                     // serves hits until ctx or the program ends
//	err = s.Close(ctx)                                   // removes every probe
//
// Probes may be added and removed at any time between Attach and Close, from any goroutine.
//
// There are two kinds of probes.
//
// Probes by definition use the language of the kernel's kprobe_events (package fetch).
// Session.Add takes definitions and returns a [Link], which reads, switches and removes their
// events. Each hit becomes a record, which the sink of Run receives. If the probe is a jump,
// the program itself writes the record.
//
// Probes with handlers use the words of the kernel's kprobes.h: Register, RegisterAll,
// Unregister, EnableProbe, DisableProbe.
//
//   - A [Kprobe] is at an instruction. Its PreHandler runs before the instruction, its
//     PostHandler after it, its FaultHandler if the instruction faults.
//   - A [Kretprobe] is at a function's return. Its EntryHandler runs at the entry and its
//     Handler at the return. Both get the same KretprobeInstance.
//   - A [Jprobe] is at a function's entry. It calls a Go function of the same signature with
//     the arguments.
//
// Handlers of a Kprobe or Kretprobe run while the thread that hit the probe is stopped. They
// see its registers as [Regs], and read and write its memory. Their changes take effect: an
// argument, a result, the address at which the thread continues. Such a probe is a breakpoint
// and costs some 15 to 60 microseconds a hit. A Jprobe without a *Regs stays a jump and costs
// the program some tens of nanoseconds: the hit only records the values, and the function is
// called later.
//
// A probe without handlers counts. Stats and NMissed return the counts. They are exact: every
// hit was recorded, filtered, limited or lost.
//
// # What blocks
//
// Methods with a context wait for the program until its threads stand still, if they change its
// text. They return early if the context ends, but never leave a change half done: it is
// completed or rolled back.
//
// Methods without a context wait at most for the tracing thread to finish with one event. Stats
// and Events only take a lock.
//
// A slow sink, a slow Jprobe function, or a slow function of Options delays hits, and never the
// program. A slow handler of a Kprobe or Kretprobe delays the program.
//
// # Effects on the calling process
//
//   - A session traces from an OS thread of its own. It moves that thread to the CPU of the
//     traced thread that stops most. No other thread is touched.
//   - The process no longer gets SIGCHLD for children that stop (SA_NOCLDSTOP). This setting
//     stays.
//   - Signal 51 interrupts system calls of the tracing thread. This setting stays, too.
//   - If a traced process is a child of the calling process, nobody else may wait for it while
//     it is traced, as exec.Cmd.Wait does: that would take the session's stops. If such a child
//     ends, the session reaps it. Session.CommandStatus returns how a command of Start ended.
//
// # Errors
//
// Every error that a caller may want to distinguish is a type or a variable of this package, of
// package fetch (the text of a definition) or of package symbols (names, files). Methods name
// theirs. Call Close after an error, too.
//
// # More
//
// ARCHITECTURE.md explains how all this works, and compares it line by line with the kernel's
// document of kprobes.
package probe
