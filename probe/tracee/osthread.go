//go:build linux && amd64

package tracee

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// ownThread runs fn on an operating system thread of its own that ends when fn
// returns, so that the kernel then detaches whatever the thread still traces.
//
// It is never the process's first thread: that one the Go runtime can't end
// (runtime/proc.go, mexit) and parks for ever. What it traces would stay traced
// by nobody: stops would be answered by none, and a killed process could not be
// collected.
func ownThread(fn func()) {
	go func() {
		// Never unlocked where fn runs: the thread ends with the goroutine.
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			fn()
			return
		}
		// As long as this goroutine holds the first thread the next gets
		// another one.
		chosen := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(chosen)
			fn()
		}()
		<-chosen
		runtime.UnlockOSThread()
	}()
}
