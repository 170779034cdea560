//go:build linux && amd64

package tracee

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/tracee/access"
)

// suspendSeccomp lets injected calls of the stopped thread pass the program's
// rules, until resumeSeccomp or the tracer's end. It reports false if that
// isn't needed.
//
// Suspending takes CAP_SYS_ADMIN. Without it a filter can't even be asked
// whether it would kill the program for the call, so such a thread is refused,
// unless all its filters are those that the tracer is under as well, being in one
// container or service with it (access.InheritedFilters).
func (t *Thread) suspendSeccomp() (suspended bool, err error) {
	st, err := procfs.Thread(t.p.pid, t.tid).Status()
	if err != nil {
		return false, ErrGone
	}
	mode := st.Field("Seccomp")
	if mode == "0" || mode == "" {
		return false, nil
	}
	if ptrace(unix.PTRACE_SETOPTIONS, t.tid, 0, options|unix.PTRACE_O_SUSPEND_SECCOMP) == 0 {
		return true, nil
	}
	if mode == "1" {
		return false, fmt.Errorf("mode strict: %w", ErrSeccomp)
	}
	n := st.Int("Seccomp_filters") // 0 on kernels before 5.9, which don't tell
	if t.inherits(n) {
		return false, nil
	}
	return false, fmt.Errorf("%d filters, which only root may suspend: %w", n, ErrSeccomp)
}

// inherits reports whether the thread's n filters are those that the tracer is under.
func (t *Thread) inherits(n int) bool {
	return n > 0 && access.InheritedFilters("/proc", os.Getpid(), t.p.pid, n)
}

// Filtered reports whether rules of seccomp may judge the system calls of a
// process: those of one of its threads (procfs.Status.Judged). A process that is gone is.
func Filtered(pid int) bool {
	tids, err := tasks(pid)
	if err != nil {
		return true
	}
	for _, tid := range tids {
		st, err := procfs.Thread(pid, tid).Status()
		if err != nil {
			continue // the thread has ended
		}
		if st.Judged() {
			return true
		}
	}
	return false
}

// resumeSeccomp ends what suspendSeccomp began.
func (t *Thread) resumeSeccomp() error {
	if e := ptrace(unix.PTRACE_SETOPTIONS, t.tid, 0, options); e != 0 {
		return t.failed("setoptions", e)
	}
	return nil
}
