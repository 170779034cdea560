// Package bench measures what probes cost per hit.
//
// Its subject is a program that it writes itself, a static executable without
// a C library: a loop that calls a function of three instructions, so often as
// it is told, and says how long that took. What a probe costs is the time with
// it less the time without, per call. Beside the probed function stand copies
// of it with detours written by hand for them alone: the floor, below which no
// detour that does the same can come.
package bench
