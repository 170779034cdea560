//go:build linux && amd64

package tracee

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/tracee/access"
)

// suspendSeccomp lets injected calls of the stopped thread bypass the program's rules, until
// resumeSeccomp or the tracer's end. It returns false if that isn't needed.
//
// Suspending takes CAP_SYS_ADMIN. Without it, kprobe can't even ask whether a filter would kill
// the program for the call. So such a thread is refused, unless the tracer is under all of its
// filters as well, being in the same container or service (access.InheritedFilters).
func (t *Thread) suspendSeccomp() (suspended bool, err error) {
	st, err := procfs.Thread(t.p.pid, t.tid).Status()
	if err != nil {
		return false, goneUnless(err)
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

// inherits reports whether the tracer is under the thread's n filters as well.
func (t *Thread) inherits(n int) bool {
	return n > 0 && access.InheritedFilters("/proc", os.Getpid(), t.p.pid, n)
}

// Filtered reports whether seccomp rules may judge the system calls of a process, in any of its
// threads (procfs.Status.Judged). It returns true for a process that is gone.
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
