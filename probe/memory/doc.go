// Package memory is what kprobe maps in an address space: the memory file, which both
// sides write, the journal in it, and arenas for code and data.
//
// Each change is journalled before it is made and until it is undone, so that a later
// kprobe finds what an earlier one left (mapping.go has the states). All of it is used
// on the tracer's thread only.
package memory
