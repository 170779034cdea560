//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hwBreakpointWrite is HW_BREAKPOINT_W of <linux/hw_breakpoint.h>.
const hwBreakpointWrite = 2

// CheckDebugRegisters returns an error around ErrNoDebugRegisters if the machine ignores debug
// registers. Some virtual machines keep what the kernel writes to them and never trap, so each
// access would be missed without a word. It watches memory of kprobe's own by perf_event_open(2),
// once. Where that isn't allowed, or the registers are taken, nothing is known and there is no
// error. It may be called concurrently.
func CheckDebugRegisters() error { return debugRegistersTrap() }

var debugRegistersTrap = sync.OnceValue(func() error {
	mem, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Munmap(mem) }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_BREAKPOINT, Bp_type: hwBreakpointWrite,
		Ext1: uint64(uintptr(unsafe.Pointer(&mem[0]))), Ext2: 8, // bp_addr, bp_len
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	for i := range uint64(100) {
		*(*uint64)(unsafe.Pointer(&mem[0])) = i
	}
	var count [8]byte
	if n, err := unix.Read(fd, count[:]); n != len(count) || err != nil || binary.NativeEndian.Uint64(count[:]) != 0 {
		return nil
	}
	return fmt.Errorf("%w: the machine ignores them, as some virtual machines do", ErrNoDebugRegisters)
})
