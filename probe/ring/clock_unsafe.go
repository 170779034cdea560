package ring

import (
	"syscall"
	"unsafe"
)

// SystemClock is this machine's clocks. It needs the constant, synchronized
// time stamp counter that every x86-64 processor of the last ten years has.
type SystemClock struct{}

// TSC reads the time stamp counter. It is not ordered against other
// instructions, as it is not in a detour.
func (SystemClock) TSC() uint64 { return rdtsc() }

// Mono reads CLOCK_MONOTONIC in nanoseconds.
func (SystemClock) Mono() int64 {
	var ts syscall.Timespec
	const clockMonotonic = 1 // linux/time.h
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}
