// Package area holds everything that kprobe has in one address space, and the one way to remove
// it: when a session leaves, and when a later kprobe recovers from one that was killed.
//
// An area is made by a session or found by a later kprobe. Either way, its journal (package
// memory) says what was written and mapped. Undoing has three steps, and each begins only after
// the one before has succeeded as a whole:
//
//  1. The text has the program's bytes again.
//  2. No thread is in kprobe's memory.
//  3. The memory is unmapped.
//
// They are in undo.go. Everything here is used on the tracer's thread only.
package area
