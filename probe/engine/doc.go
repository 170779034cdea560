// Package engine probes processes: it proves places, has plans made (probe/planner), builds and
// commits them, passes hits to their sink, and leaves everything as it was. It doesn't know
// sessions. The owner of an Engine says what to probe, and answers its questions (Owner).
//
// The main types:
//
//	Engine      the processes of a session, their definitions and events, the sink
//	Target      one process. Several that run in one memory share its addressSpace: what kprobe
//	            knows about that memory, and everything that it has put into it
//	Placed      a definition at one place of one address space: the probe
//	Site        a patched address with a breakpoint, and what belongs to it
//	Patch       a jump, or several that overlap, with the detours that they lead to
//	Feed        the rings of a memory file, on their way to the sink
//	Handler     what the tracer reports about threads
//
// The path of a definition: arm.go finds its places and proves them. probe/planner plans, and
// writes nothing. build.go writes what nothing leads to yet. commit.go writes the text, or puts
// everything back. ARCHITECTURE.md names the files in which the dangerous states are written
// down.
//
// Everything belongs to the tracer's thread (tracee.Tracer.Do), unless its comment says
// otherwise.
package engine
