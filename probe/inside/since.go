package inside

import (
	"bytes"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
)

// clock tells how long threads haven't run, by the scheduler's clock of each CPU: a
// thread's se.exec_start in /proc/PID/sched is when it was last charged for its time,
// which of one that sleeps is when it went to sleep. The same file of a thread of
// kprobe's that has just come to that CPU says what time it is there.
type clock struct {
	now map[int]reading // by CPU
}

// reading is what a CPU's clock showed, and when that was.
type reading struct {
	ns uint64
	at time.Time
}

// lastRan is when a thread last ran, in ns of its CPU's clock; 0 is not known.
func (c *clock) lastRan(task procfs.Task) uint64 {
	b, err := procfs.Read(task.Path("sched"), make([]byte, 8192))
	if err != nil {
		return 0
	}
	return execStart(b)
}

func execStart(b []byte) uint64 {
	i := bytes.Index(b, []byte("\nse.exec_start"))
	if i < 0 {
		return 0
	}
	line, _, _ := bytes.Cut(b[i+1:], []byte{'\n'})
	_, text, ok := bytes.Cut(line, []byte{':'})
	ms, frac, dot := bytes.Cut(bytes.TrimSpace(text), []byte{'.'})
	if !ok || !dot || len(frac) != 6 {
		return 0
	}
	a, err := strconv.ParseUint(string(ms), 10, 43)
	f, err2 := strconv.ParseUint(string(frac), 10, 32)
	if err != nil || err2 != nil {
		return 0
	}
	return a*1e6 + f
}

// since is how long ago a time of a CPU's clock was; 0 is not known.
func (c *clock) since(ran uint64, cpu int) uint64 {
	if ran == 0 {
		return 0
	}
	r, ok := c.now[cpu]
	if !ok {
		r = read(cpu)
		if c.now == nil {
			c.now = map[int]reading{}
		}
		c.now[cpu] = r
	}
	if r.ns == 0 {
		return 0
	}
	now := r.ns + uint64(time.Since(r.at))
	if now < ran {
		return 0
	}
	return now - ran
}

// read reads a CPU's clock. The goroutine's thread, which was bound to that CPU, ends
// with it.
func read(cpu int) reading {
	got := make(chan reading, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		got <- readHere(cpu)
	}()
	return <-got
}

func readHere(cpu int) reading {
	var set unix.CPUSet
	set.Set(cpu)
	if unix.SchedSetaffinity(0, &set) != nil {
		return reading{}
	}
	// Who has slept is charged anew.
	_ = unix.Nanosleep(&unix.Timespec{Nsec: 1}, nil)
	before := time.Now()
	b, err := procfs.Read("/proc/thread-self/sched", make([]byte, 8192))
	if err != nil {
		return reading{}
	}
	return reading{execStart(b), before}
}
