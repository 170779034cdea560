package threads

import (
	"sync"
	"time"

	"kprobe/internal/procfs"
)

// ownerAge is how long it is believed of which process a thread is: numbers are given
// again, but not so soon.
const ownerAge = 200 * time.Millisecond

// Owners tells of which process threads are, of those of a process and of what it has
// forked. A nil *Owners is of a process alone. It may be used by several goroutines.
type Owners struct {
	pid int

	mu     sync.Mutex
	owners map[int]owner
	many   int // as many as there are before old ones are forgotten
	fresh  map[int]bool
}

type owner struct {
	pid int
	at  time.Time
}

// NewOwners tells of the threads of a process and of others.
func NewOwners(pid int) *Owners {
	return &Owners{pid: pid, owners: map[int]owner{}, fresh: map[int]bool{}}
}

// Of gives the process of a thread, of which alone is the only one for a nil *Owners. One
// that nobody has seen before its end is taken for the first thread of its process, as a
// forked child's is.
func (o *Owners) Of(tid, alone int) int {
	if o == nil {
		return alone
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	x, known := o.owners[tid]
	if known && time.Since(x.at) < ownerAge {
		return x.pid
	}
	if st, err := procfs.Process(tid).Status(); err == nil && st.Int("Tgid") > 0 {
		x.pid = st.Int("Tgid")
	} else if !known {
		x.pid = tid
	}
	x.at = time.Now()
	if len(o.owners) >= max(o.many, fewNames) {
		for t, old := range o.owners {
			if x.at.Sub(old.at) > nameKeep {
				delete(o.owners, t)
			}
		}
		o.many = 2 * len(o.owners)
	}
	o.owners[tid] = x
	if x.pid != o.pid {
		o.fresh[x.pid] = true
	}
	return x.pid
}

// Fresh gives the other processes that were met since it was asked last.
func (o *Owners) Fresh() (pids []int) {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for pid := range o.fresh {
		pids = append(pids, pid)
	}
	clear(o.fresh)
	return pids
}
