package threads

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
)

// TestNamesAreForgotten: the names of threads that are gone don't grow for ever;
// those of the last minute stay.
func TestNamesAreForgotten(t *testing.T) {
	n := NewNames(1)
	const each, minutes = 2000, 10
	start := time.Now()
	for i := range uint32(each * minutes) {
		at := start.Add(time.Duration(i) * time.Minute / each)
		n.set(i, name{fmt.Sprint("t", i), at})
		if len(n.names) > 4*each {
			t.Fatalf("%d names after %d threads, %d a minute", len(n.names), i, each)
		}
		for _, ago := range []uint32{0, 1, each / 2, each - 1} {
			if ago <= i && n.names[i-ago].name != fmt.Sprint("t", i-ago) {
				t.Fatalf("the name of thread %d, of %d threads ago, is %q", i-ago, ago, n.names[i-ago].name)
			}
		}
	}
}

// TestRecentNames: a name is what the thread is called when its hits come close to each
// other, what was noted of it at once, and what it was last called after its end.
func TestRecentNames(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := uint32(unix.Gettid())
	was, err := os.ReadFile("/proc/thread-self/comm")
	if err != nil {
		t.Fatal(err)
	}
	rename := func(name string) {
		t.Helper()
		if err := os.WriteFile("/proc/thread-self/comm", []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	defer rename(string(was))
	n := NewNames(os.Getpid())
	r := NewRecent(n)
	at := uint64(1 << 40)
	want := func(name string) {
		t.Helper()
		if got := r.At(tid, at); got != name {
			t.Errorf("it is %q, want %q", got, name)
		}
	}
	aged := func() { // what was asked for long ago is asked for again
		n.mu.Lock()
		defer n.mu.Unlock()
		n.names[tid] = name{n.names[tid].name, time.Now().Add(-nameAge)}
		at += uint64(nameAge)
	}
	rename("first")
	want("first")
	rename("second")
	at += uint64(nameAge/2) - 1
	want("first")
	aged()
	want("second")
	n.Note(int(tid), "third")
	want("third")
	n.Note(int(tid), "")
	want("third")
	// Another thread of the same place in the list.
	if got := r.At(tid+64*1000, at); got != "" {
		t.Errorf("a thread that never was is %q", got)
	}
	want("third")
	aged()
	rename("last")
	want("last")
	gone := uint32(1<<30 + 3)
	n.Note(int(gone), "gone")
	if got := r.At(gone, at); got != "gone" {
		t.Errorf("a thread that has ended is %q", got)
	}
	n.mu.Lock()
	n.names[gone] = name{"gone", time.Now().Add(-nameAge)}
	n.mu.Unlock()
	if got := r.At(gone, at+uint64(nameAge)); got != "gone" {
		t.Errorf("a thread that has ended is %q later", got)
	}
}

// TestBorn: the name of a thread that has just begun is its maker's, and isn't believed
// once it can be asked for.
func TestBorn(t *testing.T) {
	pid := os.Getpid()
	n := NewNames(pid)
	n.Born(pid, "maker")
	own, err := procfs.Thread(pid, pid).Comm()
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Of(uint32(pid)); got != own {
		t.Errorf("got %q, want %q", got, own)
	}
	const gone = 1 << 30
	n.Born(gone, "maker")
	if got := n.Of(gone); got != "maker" {
		t.Errorf("of one that is gone: %q", got)
	}
}
