//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"syscall"
	"testing"
)

func sentAs(sig syscall.Signal, code int, addr uint64) (s Siginfo) {
	binary.LittleEndian.PutUint32(s[0:], uint32(sig))
	binary.LittleEndian.PutUint32(s[8:], uint32(int32(code)))
	binary.LittleEndian.PutUint64(s[16:], addr)
	return s
}

// What is held swallows what the kernel would drop beside a pending one, and no more.
func TestHold(t *testing.T) {
	const siTimer, siQueue, mapErr = -2, -1, 1
	for _, c := range []struct {
		name   string
		first  Siginfo
		second Siginfo
		want   int
	}{
		{"an interval timer's, twice", sentAs(syscall.SIGALRM, siKernel, 0), sentAs(syscall.SIGALRM, siKernel, 0), 1},
		{"kill, from two senders", sentAs(syscall.SIGUSR1, siUser, 10), sentAs(syscall.SIGUSR1, siUser, 11), 1},
		{"tgkill, twice", sentAs(syscall.SIGUSR1, siTkill, 10), sentAs(syscall.SIGUSR1, siTkill, 10), 1},
		{"to the thread and to the process", sentAs(syscall.SIGUSR1, siTkill, 10), sentAs(syscall.SIGUSR1, siUser, 10), 2},
		{"two signals", sentAs(syscall.SIGUSR1, siUser, 10), sentAs(syscall.SIGUSR2, siUser, 10), 2},
		{"one that queues", sentAs(sigRTMin, siUser, 10), sentAs(sigRTMin, siUser, 10), 2},
		{"with a value", sentAs(syscall.SIGUSR1, siQueue, 10), sentAs(syscall.SIGUSR1, siQueue, 10), 2},
		{"POSIX timers", sentAs(syscall.SIGALRM, siTimer, 1), sentAs(syscall.SIGALRM, siTimer, 2), 2},
		{"faults", sentAs(syscall.SIGSEGV, mapErr, 1), sentAs(syscall.SIGSEGV, mapErr, 2), 2},
		{"faults without an address", sentAs(syscall.SIGSEGV, siKernel, 0), sentAs(syscall.SIGSEGV, siKernel, 0), 2},
	} {
		th := &Thread{si: c.first}
		th.hold()
		th.si = c.second
		if th.hold(); len(th.held) != c.want {
			t.Errorf("%s: %d are held, want %d", c.name, len(th.held), c.want)
		}
	}
}
