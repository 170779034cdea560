//go:build linux && amd64

package tracee

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStatCPU(t *testing.T) {
	fields := func(processor string) string {
		f := strings.Fields(strings.Repeat("7 ", 50))
		f[0], f[36] = "S", processor // fields 3 and 39
		return strings.Join(f, " ")
	}
	for _, c := range []struct {
		text string
		want int
	}{
		{"12 (cat) " + fields("3"), 3},
		{"12 (cat) " + fields("0") + "\n", 0},
		{"12 (a) b (c d)) " + fields("127"), 127},
		{"12 (cat) " + fields("x"), -1},
		{"12 (cat) " + fields("-1"), -1},
		{"12 (cat) S 1 2 3", -1},
		{"12 (cat " + fields("3"), -1},
		{"", -1},
	} {
		if got := statCPU([]byte(c.text)); got != c.want {
			t.Errorf("%q: CPU %d, want %d", c.text, got, c.want)
		}
	}
	// Of a thread that is bound, the kernel's own text says where it is.
	cpu, unbind := bind(t)
	defer unbind()
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", unix.Gettid()))
	if err != nil {
		t.Fatal(err)
	}
	if got := statCPU(text); got != cpu {
		t.Errorf("bound to CPU %d, and %d is read from %s", cpu, got, text)
	}
}

// bind pins this thread to one of the CPUs that it may use, the last.
func bind(t *testing.T) (cpu int, unbind func()) {
	t.Helper()
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for i, n := 0, all.Count(); n > 0; i++ {
		if all.IsSet(i) {
			cpu, n = i, n-1
		}
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	return cpu, func() {
		if err := unix.SchedSetaffinity(0, &all); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	}
}

// TestCPUFiles: threads whose files share a place, and one that is gone and
// whose number another has.
func TestCPUFiles(t *testing.T) {
	var c cpuFiles
	defer c.close()
	self := os.Getpid()
	if got := c.of(self, unix.Gettid()); got < 0 {
		t.Errorf("this thread is on CPU %d", got)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	gone := dead.Process.Pid
	if got := c.of(gone, gone); got != -1 {
		t.Errorf("a process that is gone is on CPU %d", got)
	}
	short := exec.Command("sleep", "60")
	if err := short.Start(); err != nil {
		t.Fatal(err)
	}
	pid := short.Process.Pid
	if got := c.of(pid, pid); got < 0 {
		t.Errorf("a process that lives is on CPU %d", got)
	}
	_ = short.Process.Kill()
	_ = short.Wait()
	if got := c.of(pid, pid); got != -1 {
		t.Errorf("a process that is gone by now is on CPU %d", got)
	}
	// The file in this place is of a thread that is gone, as if its number was
	// this thread's now.
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	next := other.Process.Pid
	stale := exec.Command("sleep", "60")
	if err := stale.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/stat", stale.Process.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = stale.Process.Kill()
	_ = stale.Wait()
	e := &c[next%len(c)]
	e.close()
	*e = cpuFile{tid: next, fd: fd}
	if got := c.of(next, next); got < 0 {
		t.Errorf("behind a stale file process %d is on CPU %d", next, got)
	}
}

// TestOnlyCPU: the CPU of a thread is known where it has no other.
func TestOnlyCPU(t *testing.T) {
	cpu, unbind := bind(t)
	got, ok := onlyCPU(unix.Gettid())
	unbind()
	if !ok || got != cpu {
		t.Errorf("bound to CPU %d: %d, %v", cpu, got, ok)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	if n, ok := onlyCPU(unix.Gettid()); ok != (set.Count() == 1) {
		t.Errorf("of %d CPUs the thread has CPU %d only", set.Count(), n)
	}
}
