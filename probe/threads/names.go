package threads

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"kprobe/internal/procfs"
)

// nameAge is how long a thread's name is believed.
const nameAge = 200 * time.Millisecond

// Names are forgotten a minute after they were asked for last, when their hits have
// been read, once there are a thousand and twice as many as were left last time.
const (
	nameKeep = time.Minute
	fewNames = 1024
)

// Names are the names of a process's threads, those too that had ended when their hits
// were read. It may be used by several goroutines.
type Names struct {
	pid   int
	noted atomic.Uint64 // how often names were noted

	mu    sync.Mutex
	names map[uint32]name
	many  int // as many names as there are before old ones are forgotten
	// others says that threads of other processes are asked for, too.
	others bool
}

type name struct {
	name string
	at   time.Time
}

// NewNames gives the names of a process's threads.
func NewNames(pid int) *Names { return &Names{pid: pid, names: map[uint32]name{}} }

// Others has threads of other processes be among them.
func (n *Names) Others() { n.others = true }

// nameless is the name of a thread that had ended before it was asked for.
const nameless = "<...>"

// Note remembers the name of a thread that may be gone when its hits are read.
func (n *Names) Note(tid int, comm string) { n.note(tid, comm, 0) }

// Born is Note of a thread that has just begun, with the name of who made it: many give
// themselves another at once, so it is asked for again when it is needed.
func (n *Names) Born(tid int, comm string) { n.note(tid, comm, nameAge) }

func (n *Names) note(tid int, comm string, age time.Duration) {
	if comm == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set(uint32(tid), name{comm, time.Now().Add(-age)})
	n.noted.Add(1)
}

// set remembers a name. The lock is held.
func (n *Names) set(tid uint32, c name) {
	if len(n.names) >= max(n.many, fewNames) {
		maps.DeleteFunc(n.names, func(_ uint32, old name) bool { return c.at.Sub(old.at) > nameKeep })
		n.many = 2 * len(n.names)
	}
	n.names[tid] = c
}

// Of is a thread's name, as it was within nameAge, or when it ended.
func (n *Names) Of(tid uint32) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok := n.names[tid]
	if ok && time.Since(c.at) < nameAge {
		return c.name
	}
	thread := procfs.Thread(n.pid, int(tid))
	if n.others {
		thread = procfs.Process(int(tid))
	}
	if comm, err := thread.Comm(); err == nil && comm != "" {
		c.name = comm
	} else if n.others && c.name == "" {
		c.name = nameless
	}
	c.at = time.Now()
	n.set(tid, c)
	return c.name
}

// Recent asks for names again and again: most hits come one behind the other from few
// threads, and who reads them has no time for locks. It asks anew when names were noted
// since it asked last. It is for one goroutine.
type Recent struct {
	names *Names
	last  [64]recentName // by thread
}

type recentName struct {
	tid   uint32 // 0: none
	name  string
	from  uint64 // the time of the hit for which the name was asked
	noted uint64
}

// NewRecent asks for these names.
func NewRecent(n *Names) *Recent { return &Recent{names: n} }

// At is the name of the thread of a hit of a time in ns, "" if nobody knows it. It is
// believed for half of nameAge.
func (r *Recent) At(tid uint32, time uint64) string {
	l := &r.last[tid%uint32(len(r.last))]
	noted := r.names.noted.Load()
	if tid == 0 || l.tid != tid || l.noted != noted || time-l.from >= uint64(nameAge/2) {
		*l = recentName{tid, r.names.Of(tid), time, noted}
	}
	return l.name
}
