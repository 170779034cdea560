//go:build linux && amd64

package tracee

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// suspendSeccomp lets injected calls of the stopped thread pass the program's
// rules, until resumeSeccomp or the tracer's end. It reports false if that
// isn't needed.
//
// Suspending takes CAP_SYS_ADMIN. Without it a filter can't even be asked
// whether it would kill the program for the call, so such a thread is refused,
// unless all its filters can be taken for those of the container that the
// tracer is in as well.
func (t *Thread) suspendSeccomp() (suspended bool, err error) {
	status, err := os.ReadFile(taskPath(t.p.pid, t.tid, "status"))
	if err != nil {
		return false, ErrGone
	}
	mode := statusField(status, "Seccomp")
	if mode == "0" || mode == "" {
		return false, nil
	}
	if ptrace(unix.PTRACE_SETOPTIONS, t.tid, 0, options|unix.PTRACE_O_SUSPEND_SECCOMP) == 0 {
		return true, nil
	}
	if mode == "1" {
		return false, fmt.Errorf("mode strict: %w", ErrSeccomp)
	}
	own, err := os.ReadFile("/proc/thread-self/status")
	if err == nil && filters(status) > 0 && filters(status) <= filters(own) {
		return false, nil
	}
	return false, fmt.Errorf("%d filters, which only root may suspend: %w", filters(status), ErrSeccomp)
}

// filters gives how many seccomp filters a /proc/…/status text speaks of; 0 on
// kernels before 5.9, which don't tell.
func filters(status []byte) int {
	n, err := strconv.Atoi(statusField(status, "Seccomp_filters"))
	if err != nil {
		return 0
	}
	return n
}

// resumeSeccomp ends what suspendSeccomp began.
func (t *Thread) resumeSeccomp() error {
	if e := ptrace(unix.PTRACE_SETOPTIONS, t.tid, 0, options); e != 0 {
		return t.failed("setoptions", e)
	}
	return nil
}
