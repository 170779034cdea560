//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wakeSignal interrupts the tracer's wait. It is a real-time signal for which the Go runtime
// has a handler that does nothing, unless os/signal was asked for it.
const wakeSignal = syscall.Signal(51)

// SA_RESTART and SA_NOCLDSTOP of arch/x86/include/uapi/asm/signal.h.
const (
	saRestart   = 0x10000000
	saNoCldStop = 1
)

// wakeEvery is how often a wake-up is repeated until it is noticed: a signal that arrives just
// before the wait starts wakes nobody.
const wakeEvery = 500 * time.Microsecond

// Tracer traces processes from an OS thread of its own. Any goroutine may call Do, Attach,
// Start, Run and Close.
type Tracer struct {
	tid    int
	pid    int
	notify chan struct{} // wakes the idle loop
	jobs   []*job        // under mu
	queued atomic.Int32  // len(jobs), read without mu by the wait loop
	mu     sync.Mutex    //
	closed atomic.Bool   // set under mu
	done   chan struct{} // closed when the thread has ended
	pauses pauses
	unborn unborn
	_      [0]func() // not comparable
	state            // touched by the tracer's thread alone
}

// state is what only the tracer's thread touches.
type state struct {
	procs    map[int]*Process
	parted   map[int]*Process // processes that nobody traces now (Part)
	threads  map[int]*Thread
	early    map[int]syscall.WaitStatus // stops of threads whose creation wasn't reported yet
	orphans  map[int]*time.Timer        // of them, those that watchOrphan will look at
	kept     []*Thread                  // threads whose stops are not collected yet
	queue    []*Thread                  // stopped threads whose events are not handled yet
	children map[int]bool               // processes of Start that were not reaped yet
	reaped   map[int]syscall.WaitStatus // how such processes ended while nobody traced them
	handler  Handler
	running  bool
	stays    bool // Run continues without processes
	place    placement
	cpus     cpuFiles
	// fails is set by FailWith. injecting says that it isn't asked.
	fails     func(Request) error
	injecting bool
	untold    bool // LoseStatus's
	// answering says that Answer is running; broken, that it has failed.
	answering, broken bool
}

type job struct {
	fn     func() error
	err    error
	picked atomic.Bool
	first  chan struct{} // closed when all earlier jobs have been picked
	done   chan struct{}
}

// New starts a tracer's thread. It traces nothing yet.
func New() (*Tracer, error) {
	t := &Tracer{
		pid:    os.Getpid(),
		notify: make(chan struct{}, 1),
		done:   make(chan struct{}),
		state: state{
			procs:    map[int]*Process{},
			parted:   map[int]*Process{},
			threads:  map[int]*Thread{},
			early:    map[int]syscall.WaitStatus{},
			orphans:  map[int]*time.Timer{},
			children: map[int]bool{},
		},
	}
	ready := make(chan error)
	ownThread(func() { t.thread(ready) })
	if err := <-ready; err != nil {
		return nil, err
	}
	return t, nil
}

// quietChildren keeps the kernel from sending this process a SIGCHLD for every stop of a traced
// thread, which is a fifth of the cost of a stop.
func quietChildren() error {
	var sa sigaction
	if e := rtSigaction(syscall.SIGCHLD, nil, &sa); e != 0 {
		return fmt.Errorf("read the action of SIGCHLD: %w", e)
	}
	sa.Flags |= saNoCldStop
	if e := rtSigaction(syscall.SIGCHLD, &sa, nil); e != 0 {
		return fmt.Errorf("set the action of SIGCHLD: %w", e)
	}
	return nil
}

// makeInterrupting removes SA_RESTART from the runtime's handler of the wake signal. With it
// the kernel would restart the wait.
func makeInterrupting() error {
	var sa sigaction
	if e := rtSigaction(wakeSignal, nil, &sa); e != 0 {
		return fmt.Errorf("read the action of signal %d: %w", wakeSignal, e)
	}
	if sa.Handler <= 1 {
		return fmt.Errorf("signal %d has no handler in this runtime", wakeSignal)
	}
	sa.Flags &^= saRestart
	if e := rtSigaction(wakeSignal, &sa, nil); e != 0 {
		return fmt.Errorf("set the action of signal %d: %w", wakeSignal, e)
	}
	return nil
}

func (t *Tracer) thread(ready chan<- error) {
	defer close(t.done)
	defer t.cpus.close()
	t.tid = unix.Gettid()
	if err := errors.Join(makeInterrupting(), quietChildren()); err != nil {
		ready <- err
		return
	}
	ready <- nil
	for {
		t.runJobs()
		if t.closed.Load() {
			return
		}
		t.idle()
	}
}

// runJobs runs what Do has queued.
func (t *Tracer) runJobs() {
	for t.queued.Load() > 0 {
		t.mu.Lock()
		j := t.jobs[0]
		t.jobs = t.jobs[1:]
		t.queued.Add(-1)
		if len(t.jobs) > 0 {
			close(t.jobs[0].first)
		}
		t.mu.Unlock()
		j.picked.Store(true)
		j.err = j.fn()
		close(j.done)
	}
}

// Here reports whether the caller runs on the tracer's thread.
func (t *Tracer) Here() bool { return unix.Gettid() == t.tid }

// Do runs fn on the tracer's thread, between two events if Run is running, and returns what fn
// returns. Any goroutine may call it. On the tracer's thread itself it runs fn directly. After
// Close it returns ErrClosed.
func (t *Tracer) Do(fn func() error) error {
	if t.Here() {
		return fn()
	}
	j := &job{fn: fn, first: make(chan struct{}), done: make(chan struct{})}
	t.mu.Lock()
	if t.closed.Load() {
		t.mu.Unlock()
		return ErrClosed
	}
	if t.jobs = append(t.jobs, j); len(t.jobs) == 1 {
		close(j.first)
	}
	t.queued.Add(1)
	t.mu.Unlock()
	select {
	case t.notify <- struct{}{}:
	default:
	}
	// Only the first job wakes the thread: the signals of hundreds would leave it no time for anything else.
	select {
	case <-j.first:
	case <-t.done:
		if !j.picked.Load() { // the job that closes the tracer is picked, and its error counts
			return ErrClosed
		}
	}
	tick := time.NewTicker(wakeEvery)
	defer tick.Stop()
	for !j.picked.Load() {
		t.wake()
		select {
		case <-j.done:
			return j.err
		case <-t.done:
			return ErrClosed
		case <-tick.C:
		}
	}
	<-j.done
	return j.err
}

// wake makes a wait in progress return EINTR.
func (t *Tracer) wake() {
	// The thread is ours until Close has ended; a failure means that it ended.
	_ = unix.Tgkill(t.pid, t.tid, wakeSignal)
}

// wakeAt wakes the tracer's thread repeatedly, after d, until the returned function is called.
// It is the timeout of a wait.
func (t *Tracer) wakeAt(d time.Duration) (stop func()) {
	var over atomic.Bool
	var timer *time.Timer
	var mu sync.Mutex
	mu.Lock()
	timer = time.AfterFunc(d, func() {
		if over.Load() {
			return
		}
		t.wake()
		mu.Lock()
		timer.Reset(wakeEvery)
		mu.Unlock()
	})
	mu.Unlock()
	return func() {
		over.Store(true)
		timer.Stop()
	}
}

// Close detaches every process that is still attached, lets it continue, and ends the tracer's
// thread, and with that Run.
func (t *Tracer) Close() error {
	var errs []error
	err := t.Do(func() error {
		for _, p := range t.processes() {
			patience, told := detachPatience, p.leaving
			if told {
				// What could not be stopped was reported. The kernel leaves it
				// when the tracer's thread ends.
				patience = stopGrace
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			if err := p.Detach(ctx, nil); err != nil && !errors.Is(err, ErrGone) && !told {
				errs = append(errs, err)
			}
			cancel()
		}
		for _, p := range t.parted {
			t.drop(p)
		}
		t.reapChildren()
		t.mu.Lock()
		t.closed.Store(true)
		t.mu.Unlock()
		return nil
	})
	if errors.Is(err, ErrClosed) {
		return nil
	}
	select {
	case t.notify <- struct{}{}:
	default:
	}
	<-t.done
	return errors.Join(append(errs, err)...)
}

// reapChildren collects the status of started processes that have ended.
func (t *Tracer) reapChildren() {
	for pid := range t.children {
		t.reap(pid)
	}
}

// reap collects the status of a started process that nobody traces, if it has ended.
func (t *Tracer) reap(pid int) {
	var st uint32
	if n, _ := wait(pid, &st, unix.WNOHANG); n == pid {
		t.noteReaped(pid, syscall.WaitStatus(st))
	}
}

// noteReaped notes how a started process has ended, if the status says that it has.
func (t *Tracer) noteReaped(pid int, st syscall.WaitStatus) {
	if !t.children[pid] || !st.Exited() && !st.Signaled() {
		return
	}
	delete(t.children, pid)
	if t.reaped == nil {
		t.reaped = map[int]syscall.WaitStatus{}
	}
	t.reaped[pid] = st
}

// Reaped returns how a process of Start ended, if it ended after it was let go. It must be
// called after Close.
func (t *Tracer) Reaped(pid int) (st syscall.WaitStatus, ok bool) {
	st, ok = t.reaped[pid]
	return st, ok
}

// processes returns a copy, because handling the processes changes the map.
func (t *Tracer) processes() []*Process {
	ps := make([]*Process, 0, len(t.procs))
	for _, p := range t.procs {
		ps = append(ps, p)
	}
	return ps
}
