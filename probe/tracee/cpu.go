//go:build linux && amd64

package tracee

import (
	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
)

// CPU returns the CPU that the thread last ran on, or -1 if it can't be known.
//
// If the thread has registered an rseq area (current C libraries do), the kernel writes the
// number there each time it returns to user mode on another CPU. For other threads, such as
// Go's and musl's, the number is known if they may run on one CPU only. Otherwise it is read
// from /proc, at ten times the cost.
func (t *Thread) CPU() int {
	if area := t.rseqArea(); area != 0 && t.stopped {
		// Half the price of process_vm_readv.
		if w, e := peek(t.tid, area); e == 0 {
			if n := int32(w >> (8 * rseqCPU)); n >= 0 {
				return int(n)
			}
		}
	}
	if n, ok := onlyCPU(t.tid); ok {
		return n
	}
	return t.p.tr.cpus.of(t.p.pid, t.tid)
}

// onlyCPU returns the CPU of a thread that may run on no other.
func onlyCPU(tid int) (cpu int, ok bool) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(tid, &set) != nil || set.Count() != 1 {
		return 0, false
	}
	for !set.IsSet(cpu) {
		cpu++
	}
	return cpu, true
}

// cpuFiles are the open /proc files of the threads that were asked for last. Opening one costs
// as much again as reading it. They belong to the tracer's thread.
type cpuFiles [16]cpuFile

type cpuFile struct{ tid, fd int } // tid 0: none

// of reads a thread's CPU; -1 if it can't be known.
func (c *cpuFiles) of(pid, tid int) int {
	e := &c[tid%len(c)]
	for range 2 {
		if e.tid != tid {
			e.close()
			fd, err := unix.Open(procfs.Thread(pid, tid).Path("stat"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return -1
			}
			e.tid, e.fd = tid, fd
		}
		var b [procfs.StatSize]byte
		n, err := unix.Pread(e.fd, b[:], 0)
		if err == nil {
			return statCPU(b[:n])
		}
		// The open file may be that of a thread that is gone, whose number another one has now.
		e.close()
	}
	return -1
}

func (c *cpuFiles) close() {
	for i := range c {
		c[i].close()
	}
}

func (e *cpuFile) close() {
	if e.tid != 0 {
		_ = unix.Close(e.fd)
		*e = cpuFile{}
	}
}

// statCPU finds the processor in the text of a stat file; -1 if it isn't there.
func statCPU(text []byte) int {
	st, _ := procfs.ParseStat(text)
	cpu, ok := st.Uint(procfs.FieldCPU)
	if !ok {
		return -1
	}
	return int(cpu)
}
