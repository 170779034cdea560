package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// TestHazardP42 kills the command while two threads, which block every signal, write
// to memory that it watches: they go on, and have no debug register set afterwards,
// whoever recovers.
func TestHazardP42(t *testing.T) {
	if unwatchable(t) {
		return
	}
	bin := buildKprobe(t)
	sub := startSubject(t, watchFixture(t), "steady", "1000000000")
	sub.line()
	at := dataOf(t, sub.pid(), "counter")
	for kind := range killKinds {
		c := startKprobe(t, bin, "trace", "-q", "-o", "/dev/null", "-p", strconv.Itoa(sub.pid()), "w:c rw@counter old=$old new=$value", "p:add add")
		if !waitUntil(func() bool {
			l, err := OpenLive(sub.pid())
			if err != nil {
				return false
			}
			defer l.Close()
			for _, st := range l.Stats() {
				if st.Event.Name == "c" && st.Hits > 10 {
					return true
				}
			}
			return false
		}) {
			t.Fatalf("kind %d: no hit; %s", kind, c.stderr.String())
		}
		c.kill(kind)
		was := readWord(t, sub.pid(), at)
		if !waitUntil(func() bool { return readWord(t, sub.pid(), at) > was+200 }) {
			t.Fatalf("kind %d: the program does not go on; %s", kind, threadStates(sub.pid()))
		}
		if kind == killBoth {
			if set := debugRegisters(t, sub.pid()); set == 0 {
				t.Error("killed, both, and no register is set: what does the test show?")
			}
			if _, err := Recover(context.Background(), []int{sub.pid()}); err != nil {
				t.Errorf("recover: %v", err)
			}
		}
		if !waitUntil(func() bool { return leftBehind(sub.pid()) == "" }) {
			t.Fatalf("kind %d: %s; kprobe: %s", kind, leftBehind(sub.pid()), c.stderr.String())
		}
		if set := debugRegisters(t, sub.pid()); set != 0 {
			t.Errorf("kind %d: %d threads have debug registers set", kind, set)
		}
		was = readWord(t, sub.pid(), at)
		if !waitUntil(func() bool { return readWord(t, sub.pid(), at) > was+200 }) {
			t.Fatalf("kind %d: the program does not go on, recovered; %s", kind, threadStates(sub.pid()))
		}
	}
	writeWord(t, sub.pid(), at, 1000000000)
	sub.expect("done 1")
	checkClean(t, sub.pid())
	sub.end()
}

// dataOf is where a variable of a process lies.
func dataOf(t *testing.T, pid int, name string) symbols.Addr {
	t.Helper()
	space, err := symbols.OpenProcess(pid, nil)
	if err != nil {
		t.Fatal(err)
	}
	at, _, err := space.Data("", name)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func memoryOf(t *testing.T, pid int) *os.File {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func readWord(t *testing.T, pid int, at symbols.Addr) uint64 {
	t.Helper()
	f := memoryOf(t, pid)
	defer f.Close()
	var b [8]byte
	if _, err := f.ReadAt(b[:], int64(at)); err != nil {
		t.Fatalf("%v; %s", err, endOf(pid))
	}
	return binary.LittleEndian.Uint64(b[:])
}

func writeWord(t *testing.T, pid int, at symbols.Addr, v uint64) {
	t.Helper()
	f := memoryOf(t, pid)
	defer f.Close()
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, v), int64(at)); err != nil {
		t.Fatal(err)
	}
}

// debugRegisters counts the threads of a process that have a debug register enabled.
func debugRegisters(t *testing.T, pid int) (n int) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		if _, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, 0, 0, 0); e != 0 {
			t.Fatalf("thread %d: %v", tid, e)
		}
		if _, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, uintptr(tid), 0, 0, 0, 0); e != 0 {
			t.Fatal(e)
		}
		var st unix.WaitStatus
		for {
			if _, err := unix.Wait4(tid, &st, unix.WALL, nil); err != unix.EINTR {
				break
			}
		}
		var dr7 uint64
		const u_debugreg7 = 848 + 8*7
		if _, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKUSR, uintptr(tid), u_debugreg7, uintptr(unsafe.Pointer(&dr7)), 0, 0); e != 0 {
			t.Fatal(e)
		}
		if dr7&0xff != 0 {
			n++
		}
		sig := uintptr(0) // what it stopped with goes on to it
		if st.StopSignal() == unix.SIGTRAP && st.TrapCause() != 128 {
			sig = uintptr(unix.SIGTRAP)
		}
		if _, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(tid), 0, sig, 0, 0); e != 0 {
			t.Fatal(e)
		}
	}
	return n
}
