//go:build linux && amd64

package tracee

import (
	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// tasks lists the threads of a process. The error is ErrGone.
func tasks(pid int) ([]int, error) {
	tids, err := procfs.Process(pid).Threads()
	if err != nil {
		return nil, ErrGone
	}
	return tids, nil
}

// taskState gives the state letter of a thread, or 0 if it is gone.
func taskState(pid, tid int) byte {
	st, _ := procfs.Thread(pid, tid).Stat()
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
	flags, _ := st.Uint(procfs.FieldFlags) // none of a thread that is gone
	return flags&(procfs.FlagIOWorker|procfs.FlagUserWorker) != 0
}

// readMaps reads the mappings of a process. The error is ErrGone, also if only the memory is
// gone already.
func readMaps(pid int) ([]symbols.Mapping, error) {
	maps, err := symbols.ReadMaps(pid)
	if err != nil || len(maps) == 0 {
		return nil, ErrGone
	}
	return maps, nil
}
