// Package detour makes the code that kprobe lays into a process: the detours of
// optimized probes, the landings of return probes, and the net that keeps a
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
// path behind a file descriptor):
//
//	lea rsp, [rsp-128]; push …; lahf; seto al; push rax    the frame
//	area of this CPU; for each probe of the site:
//	  disabled: next probe
//	  early: values that the filter looks at, lengths of texts, into temporaries
//	  filter: no: lock inc filtered, next probe
//	  lock inc hits
//	  reserve room in the CPU's ring; full: lock inc lost, next probe
//	  late: the other values and the texts, into the record
//	  rdtsc, commit
//	pop …                                                  the program's registers
//	the displaced instructions, and a jump back
//
// What may happen at any instruction of it, and why that is safe:
//
//   - The thread is moved to another CPU: it goes on with the area and the ring
//     that it began with, which any CPU may write: all is locked.
//   - A signal handler runs, and hits the same probe: its frame lies below, its
//     record behind the one that is being written, which stays uncommitted until
//     the handler returns. A handler that never returns (siglongjmp) leaves an
//     uncommitted record behind, which the reader gives up in time.
//   - A load of the program's memory faults: the exception table (Fault) has an
//     address where it goes on. The tracer sends the thread there; without one
//     the net does. The value is then a fault in the record.
//   - The thread is killed: as with siglongjmp.
//   - fork: the child has the same code, and its hits go to the same rings.
//   - The tracer stops the thread to inspect it: Unwind tells the program's
//     registers from the frame.
//   - The probes are removed: the code stays.
//
// The time stamp is read after the room is reserved, so that a reader that saw
// no reservation knows that whatever comes is younger than it looked.
package detour
