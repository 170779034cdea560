//go:build linux && amd64

package tracee

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOwnThread wants what traces to run on threads that can end. That a plain
// goroutine does meet the first thread is seen beside it.
func TestOwnThread(t *testing.T) {
	plain := func(fn func()) {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			fn()
		}()
	}
	first := func(start func(func())) (n int) {
		tids := make(chan int)
		for range 3000 {
			start(func() { tids <- unix.Gettid() })
			if <-tids == os.Getpid() {
				n++
			}
			// Let the runtime's threads go idle in different orders.
			if n == 0 {
				time.Sleep(10 * time.Microsecond)
			}
		}
		return n
	}
	if n := first(ownThread); n > 0 {
		t.Errorf("%d of 3000 ran on the process's first thread", n)
	}
	t.Logf("plain goroutines: %d of 3000 on the first thread", first(plain))
}

// TestOwnThreadHasNoChildren: threads that have started processes, as any that
// the runtime has at hand may have, don't become tracers.
func TestOwnThreadHasNoChildren(t *testing.T) {
	const starters = 8
	var parents []int
	held := make(chan struct{})
	started := make(chan int)
	for range starters {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			cmd := exec.Command("sleep", "60")
			if err := cmd.Start(); err != nil {
				t.Error(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			started <- unix.Gettid()
			<-held // so that each is a thread of its own
		}()
	}
	for range starters {
		tid := <-started
		if !hasChildren(tid) {
			t.Fatalf("thread %d has started a process, and the kernel doesn't say so", tid)
		}
		parents = append(parents, tid)
	}
	close(held)
	tids := make(chan int)
	met := 0
	for range 300 {
		go func() { tids <- unix.Gettid() }()
		if slices.Contains(parents, <-tids) {
			met++
		}
		ownThread(func() { tids <- unix.Gettid() })
		if tid := <-tids; slices.Contains(parents, tid) {
			t.Fatalf("thread %d, which has started a process, became a tracer's", tid)
		}
	}
	t.Logf("plain goroutines: %d of 300 on such a thread", met)
}
