// Package output writes what kprobe found: trace lines in the kernel's shape,
// JSON objects, profiles, listings and tables. It knows nothing of how hits
// come about; it takes the values of package probe and gives bytes.
//
// The path of a hit (Formatter, Trace, Writer) allocates nothing once it has
// seen every event.
package output
