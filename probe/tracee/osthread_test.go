//go:build linux && amd64

package tracee

import (
	"os"
	"runtime"
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
