//go:build linux && amd64

package tracee

import (
	"os"
	"runtime"

	"kprobe/internal/procfs"

	"golang.org/x/sys/unix"
)

// ownThread runs fn on an operating system thread of its own that ends when fn
// returns, so that the kernel then detaches whatever the thread still traces.
//
// It is never the process's first thread: that one the Go runtime can't end
// (runtime/proc.go, mexit) and parks for ever. What it traces would stay traced
// by nobody: stops would be answered by none, and a killed process could not be
// collected.
//
// Nor is it one that has started a process. If another thread of ours traces
// that process, the kernel takes it for the starter's to wait for as well
// (kernel/exit.c, wait_consider_task: to be traced from within the parent's
// thread group is not to be reparented). So a wait here would take a stop that
// the other tracer is waiting for.
func ownThread(fn func()) { tryThread(fn, func() {}) }

// tryThread is ownThread that calls chosen once a thread is found.
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

// hasChildren reports whether a thread of this process has started processes
// that live. Where the kernel doesn't tell (CONFIG_PROC_CHILDREN) it has none.
func hasChildren(tid int) bool {
	kids, _ := procfs.Thread(os.Getpid(), tid).Children()
	return len(kids) > 0
}
