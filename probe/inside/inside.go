// Package inside reports which calls the threads of a process are in at this moment, and since
// when. It uses /proc, copies of their stacks and, for running threads, samples
// (perf_event_open(2)). It stops and traces nothing.
package inside

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// Options are what Look takes into account.
type Options struct {
	// Open are the calls that probes have seen begin and not return.
	Open []results.OpenCall
	// Space is the process; nil: it is opened.
	Space *symbols.Space
}

// The bounds of what is looked at.
const (
	maxThreads = 4096
	maxFrames  = results.MaxInside
	maxCopy    = 512 << 10 // bytes of a stack
	maxTries   = 3
)

// looker looks at a process.
type looker struct {
	pid     int
	space   *symbols.Space
	walker  *symbols.Walker
	open    map[int][]results.OpenCall // by thread
	returns map[symbols.Addr]symbols.Addr
	slots   []symbols.Addr // of the stack that is walked
	files   *files
	clock   clock
	inner   map[uint32]int // numbers of threads as they see them
}

// Look tells what the threads of a process are inside of. It takes as long as ctx lets
// it: what isn't known by then isn't told. Errors are symbols.ErrGone and
// symbols.ErrPermission: it takes the right to trace the process (ptrace(2)).
func Look(ctx context.Context, pid int, o Options) (*results.Inside, error) {
	l := &looker{pid: pid, space: o.Space, open: map[int][]results.OpenCall{}, returns: map[symbols.Addr]symbols.Addr{}, files: &files{pid: pid}}
	if l.space == nil {
		var err error
		if l.space, err = symbols.OpenProcess(pid, Memory(pid)); err != nil {
			return nil, err
		}
	}
	for _, c := range o.Open {
		l.open[c.TID] = append(l.open[c.TID], c)
		if c.Slot != 0 && c.Return != 0 {
			l.returns[c.Slot] = c.Return
		}
	}
	l.walker = symbols.NewWalker(l.space)
	l.walker.Guess = true
	l.walker.Behind = func(ra, slot symbols.Addr) symbols.Addr {
		l.slots = append(l.slots, slot)
		if real, ok := l.returns[slot]; ok {
			return real
		}
		return ra
	}
	tids, err := procfs.Process(pid).Threads()
	if err != nil {
		return nil, gone(err)
	}
	slices.Sort(tids)
	if i := slices.Index(tids, pid); i > 0 {
		tids = slices.Insert(slices.Delete(tids, i, i+1), 0, pid)
	}
	p := &results.Inside{PID: pid}
	if len(tids) > maxThreads {
		p.More = len(tids) - maxThreads
		tids = tids[:maxThreads]
	}
	p.Comm, _ = procfs.Process(pid).Comm()
	l.numbers(tids)
	var running []*results.InsideThread
	for _, tid := range tids {
		if ctx.Err() != nil {
			p.More += len(tids) - len(p.Threads)
			break
		}
		t, err := l.thread(tid)
		if err != nil {
			if errors.Is(err, symbols.ErrPermission) {
				return nil, err
			}
			continue // it has ended
		}
		p.Threads = append(p.Threads, t)
		if len(t.Frames) == 0 && t.Call == nil && t.State == 'R' {
			running = append(running, t)
		}
	}
	if len(p.Threads) == 0 {
		return nil, symbols.ErrGone
	}
	p.Unsampled = l.sampleAll(ctx, running)
	for _, t := range p.Threads {
		l.waits(t)
	}
	p.Deadlock = deadlock(p.Threads)
	p.Goroutines, p.GoOwn, p.GoMore, p.GoError = l.goroutines(ctx, o.Open)
	return p, nil
}

func gone(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return symbols.ErrGone
	case errors.Is(err, fs.ErrPermission):
		return symbols.ErrPermission
	}
	return err
}

// numbers notes by which numbers threads know each other.
func (l *looker) numbers(tids []int) {
	l.inner = make(map[uint32]int, len(tids))
	for _, tid := range tids {
		st, err := procfs.Thread(l.pid, tid).Status()
		if err != nil {
			continue
		}
		if n, nested := st.InnerNumber(); nested {
			l.inner[n] = tid
		} else {
			l.inner[uint32(tid)] = tid
		}
	}
}

// thread looks at a thread until it hasn't moved meanwhile, some times.
func (l *looker) thread(tid int) (*results.InsideThread, error) {
	task := procfs.Thread(l.pid, tid)
	var t *results.InsideThread
	for try := 0; ; try++ {
		st, err := task.Stat()
		if err != nil {
			return nil, gone(err)
		}
		if st.Ended() {
			return nil, symbols.ErrGone
		}
		t = &results.InsideThread{TID: tid, State: st.State()}
		cpu, _ := st.Uint(procfs.FieldCPU)
		t.CPU = int(cpu)
		t.Comm, _ = task.Comm()
		at, err := task.Position()
		if err != nil {
			return nil, gone(err)
		}
		if at.Running {
			return t, nil
		}
		began := l.clock.lastRan(task)
		if at.InCall {
			t.Call = l.call(&at)
		}
		l.stack(t, &at)
		after, err := task.Position()
		if err != nil {
			return nil, gone(err)
		}
		t.Moved = after != at || l.clock.lastRan(task) != began
		if t.Moved && try+1 < maxTries {
			continue
		}
		if t.State != 'R' && !t.Moved {
			t.Since = l.clock.since(began, t.CPU)
		}
		l.standing(t, task)
		return t, nil
	}
}

// standing finds why a thread stands still that isn't in a system call, or can't be
// interrupted.
func (l *looker) standing(t *results.InsideThread, task procfs.Task) {
	switch t.State {
	case 'D':
		if b, err := procfs.Read(task.Path("wchan"), make([]byte, 128)); err == nil && string(b) != "0" {
			t.Wait = string(b)
		}
	case 't':
		if st, err := task.Status(); err == nil {
			t.Tracer = st.Int("TracerPid")
		}
	}
}

// Memory reads the memory of a process. It gives up where a page doesn't come that
// the process fills itself.
type Memory int

// ReadMemory implements symbols.Memory.
func (m Memory) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	type result struct {
		b []byte
		n int
	}
	got, err := untrusted.Within(func() (result, error) {
		own := make([]byte, len(b)) // b is the caller's again when this has taken too long
		n, err := vmRead(int(m), own, uint64(at))
		return result{own, n}, err
	})
	if errors.Is(err, untrusted.ErrNoAnswer) {
		return 0, fmt.Errorf("read memory of process %d at %v: %w", int(m), at, symbols.ErrLatePage)
	}
	n := copy(b[:min(len(b), max(got.n, 0))], got.b)
	if n == len(b) {
		return n, nil
	}
	if err == nil {
		err = syscall.EFAULT
	}
	return n, fmt.Errorf("read memory of process %d at %v: %w", int(m), at, err)
}
