// Package bench measures the cost of a probe's hit.
//
// Its subject is a program that it writes itself, a static executable without a C library. The
// program calls a function of three instructions in a loop, as often as it is told, and reports
// how long that took. The cost of a probe is the time with it minus the time without it, per
// call. Next to the probed function there are copies of it with handwritten detours: they are
// the floor, which no detour that does the same work can beat.
package bench
