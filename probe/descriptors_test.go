package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// TestHazardP61: kprobe runs out of descriptors at every point of attaching and arming. The
// program has the same descriptors afterwards, and nothing of kprobe's is mapped.
func TestHazardP61(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "1")
	before := filesOf(t, sub.pid())
	var was unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restore)
	dir, err := os.MkdirTemp("/dev/shm", "kprobe-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, o := range []Options{{}, {Detach: true, Keep: filepath.Join(dir, "ring")}} {
		armed, failed := 0, 0
		for extra := 0; extra < 40 && armed < 3; extra++ {
			defs := parseDefs(t, "p:hit hit")
			few := was
			next, free := fillDescriptors(t)
			few.Cur = uint64(next + extra)
			if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &few, nil); err != nil {
				t.Fatal(err)
			}
			s, err := Attach(t.Context(), []int{sub.pid()}, o)
			if err == nil {
				err = s.Arm(t.Context(), defs)
			}
			restore()
			free()
			if s != nil {
				if cerr := s.Close(t.Context()); cerr != nil {
					t.Fatalf("with %d descriptors: %v", extra, cerr)
				}
			}
			_ = os.Remove(o.Keep)
			if err == nil {
				armed++
			} else {
				failed++
				t.Logf("with %d descriptors: %v", extra, err)
			}
			if after := filesOf(t, sub.pid()); after != before {
				t.Fatalf("with %d descriptors, %v: the program has\n%s\nand had\n%s", extra, err, after, before)
			}
		}
		if armed == 0 || failed == 0 {
			t.Errorf("armed %d times, failed %d times", armed, failed)
		}
	}
	sub.says("go 10")
	sub.end()
}

// fillDescriptors takes the free numbers below this process's highest descriptor, until free is
// called. next is the lowest number that is free then.
func fillDescriptors(t *testing.T) (next int, free func()) {
	t.Helper()
	list, err := procfs.Process(os.Getpid()).Descriptors()
	if err != nil {
		t.Fatal(err)
	}
	var fill []int
	for next <= slices.Max(list) {
		if next, err = unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		fill = append(fill, next)
	}
	_ = unix.Close(next)
	fill = fill[:len(fill)-1]
	return next, func() {
		for _, fd := range fill {
			_ = unix.Close(fd)
		}
	}
}

// filesOf lists a process's descriptors, and the files that it has mapped.
func filesOf(t *testing.T, pid int) string {
	t.Helper()
	task := procfs.Process(pid)
	list, err := task.Descriptors()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	var b strings.Builder
	for _, fd := range list {
		to, err := os.Readlink(task.Path("fd/" + strconv.Itoa(fd)))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, fd, to)
	}
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Path != "" && m.Path != "[heap]" && m.Path != "[stack]" {
			fmt.Fprintln(&b, m.Start, m.End, m.Perms(), m.Path)
		}
	}
	return b.String()
}
