//go:build linux && amd64

package tracee

import "golang.org/x/sys/unix"

// placement moves the tracer's thread to the CPU of the thread that stops most. A stop there
// costs a third of a stop across CPUs, where each side has to wake an idle CPU for the other.
type placement struct {
	tid    int // the thread that stopped last
	streak int // how often in a row
	all    unix.CPUSet
	pinned bool
}

// streakMin is how many stops in a row make a thread worth following, and after how many its
// CPU is looked up again.
const streakMin = 64

// hit counts a breakpoint stop of a thread; cpuOf tells where it was.
func (p *placement) hit(tid int, cpuOf func() int) {
	if tid != p.tid {
		p.tid, p.streak = tid, 0
		p.release()
		return
	}
	if p.streak++; p.streak%streakMin != 0 {
		return
	}
	cpu := cpuOf()
	if cpu < 0 {
		return
	}
	if !p.pinned && unix.SchedGetaffinity(0, &p.all) != nil || !p.all.IsSet(cpu) {
		return
	}
	var one unix.CPUSet
	one.Set(cpu)
	// Without it a stop only costs more.
	p.pinned = unix.SchedSetaffinity(0, &one) == nil
}

// release lets the tracer's thread run anywhere again.
func (p *placement) release() {
	if p.pinned {
		_ = unix.SchedSetaffinity(0, &p.all)
		p.pinned = false
	}
}
