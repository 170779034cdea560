// Package output writes results: trace lines in the kernel's format, JSON objects, profiles,
// listings and tables. It doesn't know how hits come about. It turns the values of package
// probe into bytes.
//
// The path of a hit (Formatter, Trace, Writer) allocates nothing once it has seen every event.
package output
