// Package detour makes the code that kprobe puts into a process: the detours of optimized
// probes, the return trampolines of return probes, and the fallback handler that keeps a
// process alive when its tracer has died.
//
// Everything here is bytes in and bytes out. The caller maps memory, writes code and data to
// the addresses that it has named, and keeps them mapped as long as the process lives: a thread
// may be in any of it at any time.
//
// # A detour
//
// The probed instruction is replaced by a jump to the detour. The detour runs in the thread
// that hit the probe, on its stack. It enters the kernel only for values that have no other
// source (the thread's name; its number if no control block has it; the path of a file
// descriptor), and never in strict seccomp.
//
//	lea rsp, [rsp-128]; push …; lahf; seto al; push rax    the frame
//	for each probe of the site:
//	  disabled: next probe
//	  early: values that the filter looks at, lengths of texts, into temporaries
//	  filter: no: inc filtered, next probe
//	  inc hits, or reserve room in a ring of this CPU's; full: inc lost, next probe
//	  late: the other values and the texts, into the record
//	  rdtsc, commit
//	pop …                                                  the program's registers
//	the displaced instructions, and a jump back
//
// The following may happen at any of its instructions, and is safe:
//
//   - The thread is moved to another CPU. It continues with the record for which it has
//     reserved room, and which is its own. Counting, and reserving room, is one locked
//     instruction or one restartable sequence (seqcode.go).
//   - A signal handler runs, and hits the same probe. Its frame lies below, and its record
//     after the one that is being written, which stays uncommitted until the handler returns. A
//     handler that never returns (siglongjmp) leaves an uncommitted record, which the reader
//     gives up in time.
//   - A load of the program's memory faults. The exception table (Fault) has the address where
//     the thread continues. The tracer sends it there or, if there is no tracer, the fallback
//     handler. The value is then a fault in the record.
//   - Anything else faults: the stack has no room for the frame, the time can't be read, fs
//     leads to no control block. Some of this is asked for (Ask). For the rest, Undo gives the
//     site's registers, and which hits were taken.
//   - The thread is killed: as with siglongjmp.
//   - fork: the child has the same code, and its hits go to the same rings.
//   - The tracer stops the thread to inspect it: Unwind gives the program's registers from the
//     frame.
//   - The probes are removed: the code stays.
//
// The time stamp is read after the room is reserved. So a reader that has seen no reservation
// knows that every later record has a later time.
package detour
