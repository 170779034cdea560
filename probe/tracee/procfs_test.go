//go:build linux && amd64

package tracee

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// TestGoneProcesses: what is known of a process that has ended, before and after
// its parent has taken notice.
func TestGoneProcesses(t *testing.T) {
	if ts, err := tasks(os.Getpid()); err != nil || !slices.Contains(ts, os.Getpid()) {
		t.Errorf("a process isn't among its own threads %v, %v", ts, err)
	}
	if maps, err := readMaps(os.Getpid()); err != nil || len(maps) == 0 {
		t.Errorf("%d mappings, %v", len(maps), err)
	}
	c := exec.Command("true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pid := c.Process.Pid
	eventually(t, "a zombie", func() bool { return taskState(pid, pid) == 'Z' })
	if maps, err := readMaps(pid); !errors.Is(err, ErrGone) {
		t.Errorf("a zombie has %d mappings, %v", len(maps), err)
	}
	if !hasEnded(taskState(pid, pid)) || !isThread(pid, pid) {
		t.Error("a zombie hasn't ended, or is no thread")
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if ts, err := tasks(pid); !errors.Is(err, ErrGone) {
		t.Errorf("a process that is gone has threads %v, %v", ts, err)
	}
	if maps, err := readMaps(pid); !errors.Is(err, ErrGone) {
		t.Errorf("a process that is gone has %d mappings, %v", len(maps), err)
	}
	if s := taskState(pid, pid); s != 0 || !hasEnded(s) || isThread(pid, pid) {
		t.Errorf("a process that is gone is in state %q", s)
	}
}

// TestNoDescriptors: a process that can't be read for want of descriptors is not gone.
func TestNoDescriptors(t *testing.T) {
	pid := os.Getpid()
	var was unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 0, Max: was.Max}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &none, nil); err != nil {
		t.Fatal(err)
	}
	_, tasksErr := tasks(pid)
	_, mapsErr := readMaps(pid)
	state := taskState(pid, pid)
	attachErr := (&Tracer{}).mayAttach(pid)
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"tasks": tasksErr, "readMaps": mapsErr, "mayAttach": attachErr} {
		if !errors.Is(err, unix.EMFILE) || errors.Is(err, ErrGone) {
			t.Errorf("%s without descriptors: %v", what, err)
		}
	}
	if hasEnded(state) {
		t.Errorf("a thread that can't be read has state %q", state)
	}
}

// TestSharesMemory: a process shares its own memory, and no child's that has
// executed another program.
func TestSharesMemory(t *testing.T) {
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = c.Wait() }()
	own := os.Getpid()
	if !sharesMemory(own, own) || sharesMemory(own, c.Process.Pid) {
		t.Errorf("with itself %v, with a child %v", sharesMemory(own, own), sharesMemory(own, c.Process.Pid))
	}
}

// TestSiginfo reads what signals are by their codes.
func TestSiginfo(t *testing.T) {
	for _, c := range []struct {
		sig  syscall.Signal
		code int32
		sync bool
	}{
		{syscall.SIGSEGV, 1, true}, {syscall.SIGSEGV, siKernel, true}, {syscall.SIGSEGV, 0, false}, {syscall.SIGSEGV, siTkill, false},
		{syscall.SIGBUS, 2, true}, {syscall.SIGILL, 2, true}, {syscall.SIGFPE, 1, true}, {syscall.SIGTRAP, trapBrkpt, true},
		{syscall.SIGTRAP, trapTrace, true}, {syscall.SIGTRAP, 0, false}, {syscall.SIGUSR1, 1, false}, {syscall.SIGCHLD, 1, false},
	} {
		var si Siginfo
		si[0] = byte(c.sig)
		for i := range 4 {
			si[8+i] = byte(uint32(c.code) >> (8 * i))
		}
		if si.Signal() != c.sig || si.Code() != int(c.code) || si.Synchronous() != c.sync {
			t.Errorf("%v with code %d: %v, %d, of the thread's own doing: %v", c.sig, c.code, si.Signal(), si.Code(), si.Synchronous())
		}
		const at = symbols.Addr(0x1234_5678_9abc_def0)
		if si.SetAddr(at); si.Addr() != at || si.PID() != -0x65432110 || si.Signal() != c.sig || si.Code() != int(c.code) {
			t.Errorf("an address of %v reads as %v, and as process %d", at, si.Addr(), si.PID())
		}
	}
	a := Sigaction{Handler: 0x1122, Flags: 3, Restorer: 0x5566_7788_99aa, Mask: 1 << 63}
	if b := a.bytes(); len(b) != sigactionSize || parseSigaction(b) != a {
		t.Errorf("%+v comes back as %+v from %d bytes", a, parseSigaction(b), len(b))
	}
	for s := syscall.Signal(1); s < 65; s++ {
		if want := s == syscall.SIGSTOP || s == syscall.SIGTSTP || s == syscall.SIGTTIN || s == syscall.SIGTTOU; isStopSignal(s) != want {
			t.Errorf("%v stops: %v", s, isStopSignal(s))
		}
	}
}
