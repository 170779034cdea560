//go:build linux && amd64

package tracee

import (
	"context"

	"golang.org/x/sys/unix"
)

// Executed reports whether a thread of the process has executed a new program and the handler
// hasn't been told yet: what was known about its memory is void. It stops the threads to find
// out, and waits for them as long as StopAll does.
func (p *Process) Executed(ctx context.Context) (executed bool) {
	_ = p.WithStopped(ctx, func(stopped []*Thread) error { // threads that don't stop tell nothing
		for _, th := range stopped {
			executed = executed || th.deferred && th.status>>16 == unix.PTRACE_EVENT_EXEC
		}
		return nil
	})
	return executed
}
