// Package engine probes processes: it proves places, plans and writes patches, takes hits
// to their sink, and leaves everything as it was. It knows no session: who has an Engine
// says what is to be probed, and answers what it asks (Owner).
//
// What holds what:
//
//	Engine      the processes of a session, their definitions and events, the sink
//	Target      one process; several that run in one memory share its addressSpace:
//	            what kprobe knows of that memory, and all that it has laid into it
//	Placed      a definition at one place of one address space: the probe
//	site        a patched address with a breakpoint, and what hangs on it
//	Patch       a jump, or several that overlap, with the detours that it leads to
//	Feed        the rings of a memory file, on their way to the sink
//	Handler     what the tracer tells of threads
//
// The way of a definition: arm.go finds its places and proves them, optimize.go plans (the
// planner writes nothing), build.go lays what nothing leads to yet, commit.go writes the
// text, or puts all back. ARCHITECTURE.md names the files in which the dangerous states are
// written down.
//
// Everything is the tracer thread's (tracee.Tracer.Do), unless its comment says otherwise.
package engine
