//go:build linux && amd64

package tracee

import (
	"fmt"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// goneUnless is the error for a process of which nothing can be read from /proc: ErrGone, unless the reason
// is that kprobe has no descriptors or memory left. Then the process still lives.
func goneUnless(err error) error {
	if procfs.Short(err) {
		return fmt.Errorf("read what /proc tells of the process: %w", err)
	}
	return ErrGone
}

// tasks lists the threads of a process. The errors are ErrGone and those of goneUnless.
func tasks(pid int) ([]int, error) {
	tids, err := procfs.Process(pid).Threads()
	if err != nil {
		return nil, goneUnless(err)
	}
	return tids, nil
}

// taskState returns the state letter of a thread; 0 if the thread is gone, '?' if the state can't be read.
func taskState(pid, tid int) byte {
	st, err := procfs.Thread(pid, tid).Stat()
	if procfs.Short(err) {
		return '?'
	}
	return st.State()
}

// isWorker reports whether a thread is one that the kernel has made in the process for its own
// work: io_uring's iou-sqp and iou-wrk, and vhost's. The kernel lists them with the program's
// threads, and even lets them be seized, but they never run in user mode and never stop.
func (p *Process) isWorker(tid int) bool {
	if tid == p.pid {
		return false
	}
	st, _ := procfs.Thread(p.pid, tid).Stat()
	flags, _ := st.Uint(procfs.FieldFlags) // 0 if the thread is gone
	return flags&(procfs.FlagIOWorker|procfs.FlagUserWorker) != 0
}

// readMaps reads the mappings of a process. The errors are ErrGone, also if only the memory
// is gone already, and those of goneUnless.
func readMaps(pid int) ([]symbols.Mapping, error) {
	maps, err := symbols.ReadMaps(pid)
	if err != nil || len(maps) == 0 {
		return nil, goneUnless(err)
	}
	return maps, nil
}
