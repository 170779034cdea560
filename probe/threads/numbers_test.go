package threads

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kprobe/internal/procfs"
)

// TestNumbers has a /proc/PID made of files.
func TestNumbers(t *testing.T) {
	dir := t.TempDir()
	status := func(tid int, line string) {
		t.Helper()
		at := filepath.Join(dir, "task", fmt.Sprint(tid))
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "status"), []byte("Name:\tx\nNStgid:\t7\n"+line+"Threads:\t2\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	status(100, "NSpid:\t100\t1\n")
	status(101, "NSpid:\t101\t30\t2\n") // three deep: the last counts
	n := &Numbers{proc: procfs.Task(dir), here: map[uint32]int{}, there: map[int]uint32{}}
	for inner, outer := range map[uint32]int{1: 100, 2: 101} {
		if got := n.Outside(inner); got != outer {
			t.Errorf("thread %d there is %d here, want %d", inner, got, outer)
		}
		if got := n.Inside(outer); got != inner {
			t.Errorf("thread %d here is %d there, want %d", outer, got, inner)
		}
	}

	// A thread that nobody has seen keeps its number, and is looked for again.
	if got := n.Outside(3); got != 3 {
		t.Errorf("unknown: %d", got)
	}
	status(102, "NSpid:\t102\t3\n")
	n.scanned = time.Now().Add(-2 * scanAgain)
	if got := n.Outside(3); got != 102 {
		t.Errorf("found late: %d", got)
	}
	// Its number is taken by another, which is learned at its birth.
	status(103, "NSpid:\t103\t3\n")
	n.Learn(103)
	if got := n.Outside(3); got != 103 {
		t.Errorf("taken over: %d", got)
	}
	if got := n.Inside(104); got != 104 {
		t.Errorf("no such thread: %d", got)
	}

	var same *Numbers
	same.Learn(5)
	if same.Inside(5) != 5 || same.Outside(5) != 5 {
		t.Error("in one namespace numbers stay")
	}
	if NumbersOf(os.Getpid()) != nil {
		t.Error("this process is in its own namespace")
	}
	for _, line := range []string{"", "NSpid:\n", "NSpid:\t100\n", "NSpid:\t100\tx\n"} {
		status(200, line)
		st, err := procfs.Task(dir).Thread(200).Status()
		if v, nested := st.InnerNumber(); err != nil || nested {
			t.Errorf("%q: %d", line, v)
		}
	}
}
