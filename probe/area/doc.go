// Package area is all that kprobe has in one address space, and the one way to take it
// out: a session's, when it leaves, and a killed one's, when a later kprobe recovers.
//
// Whether it was made or found, an area knows what was written and mapped by its journal
// (package memory). Undoing has three steps, and none begins before the one before it has
// succeeded as a whole: the text has the program's bytes again, no thread is in kprobe's
// memory, the memory is unmapped. undo.go has them.
//
// All of it is used on the tracer's thread only.
package area
