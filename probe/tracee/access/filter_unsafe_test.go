//go:build linux && amd64

package access

import (
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbidPtrace puts this process under a filter of system calls and says what is
// found out about it. mode is what ptrace is answered with.
func forbidPtrace(t *testing.T, mode string) {
	runtime.LockOSThread()
	answer := map[string]uint32{"errno": 0x00050000 | uint32(unix.EPERM), "kill": 0x80000000, "other": 0x7fff0000}[mode]
	const ld, jeq, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: ld, K: 0},
		{Code: jeq, K: unix.SYS_PTRACE, Jf: 1},
		{Code: ret, K: answer},
		{Code: ret, K: 0x7fff0000},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	const setModeFilter, tsync = 1, 1
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, tsync, uintptr(unsafe.Pointer(&prog))); e != 0 {
		t.Fatal(e)
	}
	t.Logf("forbidden: %v, by the case: %v", ptraceForbidden(), Look("/proc", os.Getpid(), os.Getppid()).Forbidden)
}
