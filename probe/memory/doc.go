// Package memory is what kprobe maps in an address space: the memory file, which both sides
// write, the journal in it, and arenas for code and data.
//
// Each change is entered in the journal before it is made, and stays there until it is undone,
// so that a later kprobe finds what an earlier one left (mapping.go has the states). Everything
// here is used on the tracer's thread only.
package memory
