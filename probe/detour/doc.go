// Package detour makes the code that kprobe lays into a process: the detours of
// optimized probes, the return trampolines of return probes, and the fallback handler that keeps a
// process alive whose tracer has died.
//
// Everything here is bytes in and bytes out. The caller maps memory, writes
// code and data to the addresses that it named, and keeps them mapped as long
// as the process lives: a thread may be in any of it at any time.
//
// # A detour
//
// The probed instruction has become a jump to the detour, which runs in the
// thread that hit it, on its stack, and enters the kernel only for what has no
// other source (the thread's name; its number where no control block has it; the
// path behind a file descriptor), and not in strict seccomp:
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
// What may happen at any instruction of it, and why that is safe:
//
//   - The thread is moved to another CPU: it goes on with the record that it has
//     room for, which is its own. To count, and to take room, is one locked
//     instruction, or a restartable sequence (seqcode.go).
//   - A signal handler runs, and hits the same probe: its frame lies below, its
//     record behind the one that is being written, which stays uncommitted until
//     the handler returns. A handler that never returns (siglongjmp) leaves an
//     uncommitted record behind, which the reader gives up in time.
//   - A load of the program's memory faults: the exception table (Fault) has an
//     address where it goes on. The tracer sends the thread there; without one
//     the fallback handler does. The value is then a fault in the record.
//   - Anything else faults: the stack has no room for the frame, the time can't be
//     read, fs leads to no control block. Some of it is asked for (Ask); for the rest
//     Undo tells the site's registers and which hits were taken.
//   - The thread is killed: as with siglongjmp.
//   - fork: the child has the same code, and its hits go to the same rings.
//   - The tracer stops the thread to inspect it: Unwind tells the program's
//     registers from the frame.
//   - The probes are removed: the code stays.
//
// The time stamp is read after the room is reserved, so that a reader that saw
// no reservation knows that whatever comes is younger than it looked.
package detour
