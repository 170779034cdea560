//go:build linux && amd64

package tracee

import (
	"os"
	"runtime"

	"kprobe/internal/procfs"

	"golang.org/x/sys/unix"
)

// ownThread runs fn on an OS thread of its own that ends when fn returns. The kernel then
// detaches whatever the thread still traces.
//
// It is never the process's first thread. The Go runtime can't end that one (runtime/proc.go,
// mexit) and parks it forever. Whatever it traces would stay traced, nobody would answer stops,
// and a killed process could not be collected.
//
// It is also never a thread that has started a process. If another thread of this process
// traces that process, the kernel lets the thread that started it wait for it as well
// (kernel/exit.c, wait_consider_task: being traced from within the parent's thread group is not
// being reparented). So a wait here would take a stop that the other tracer is waiting for.
func ownThread(fn func()) { tryThread(fn, func() {}) }

// tryThread is ownThread, and calls chosen once a thread is found.
func tryThread(fn, chosen func()) {
	go func() {
		// Never unlocked where fn runs: the thread ends with the goroutine.
		runtime.LockOSThread()
		if tid := unix.Gettid(); tid != unix.Getpid() && !hasChildren(tid) {
			chosen()
			fn()
			return
		}
		// As long as this goroutine holds the thread the next gets another one.
		found := make(chan struct{})
		tryThread(fn, func() { close(found) })
		<-found
		runtime.UnlockOSThread()
		chosen()
	}()
}

// hasChildren reports whether a thread of this process has started processes that live. If the
// kernel doesn't tell (CONFIG_PROC_CHILDREN), it returns false.
func hasChildren(tid int) bool {
	kids, _ := procfs.Thread(os.Getpid(), tid).Children()
	return len(kids) > 0
}
