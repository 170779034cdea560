package untrusted

import (
	"bytes"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
)

// patience is how long one look at a file may wait for whoever has to answer it. The time
// in which this process is kept from running, or has work to do itself, doesn't count.
var patience = 5 * time.Second

const (
	// looks is how often it is looked whether a call waits, in the time that it may.
	looks = 50
	// longest is how many times as long a call may take in all, whatever it does.
	longest = 12
)

// stuck counts the calls that wait, each with an operating system's thread.
var stuck atomic.Int32

// The states of a call that bounded waits for. Who changes running says whose
// the result is: the caller's, or nobody's.
const (
	running = iota
	done
	abandoned
)

// bounded calls do on a goroutine of its own and waits for it as long as it may wait
// for others. What comes later is given to drop. waited is about how long it has.
func bounded[T any](most time.Duration, do func() (T, error), drop func(T)) (out T, waited time.Duration, err error) {
	if stuck.Load() >= maxStuck {
		return out, 0, ErrNoAnswer
	}
	var state, thread atomic.Int32
	came := make(chan struct{})
	var got T
	var failed error
	go func() {
		// So that it can be seen what it waits for.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread.Store(int32(unix.Gettid()))
		v, err := do()
		got, failed = v, err
		if state.CompareAndSwap(running, done) {
			close(came)
			return
		}
		stuck.Add(-1)
		if err == nil {
			drop(v)
		}
	}()
	each := max(most/looks, time.Millisecond)
	tick := time.NewTicker(each)
	defer tick.Stop()
	for all := 0; waited < most && all < looks*longest; all++ {
		select {
		case <-came:
			return got, waited, failed
		case <-tick.C:
			// One that comes late counts once: nobody ran in between.
			if waits(int(thread.Load())) {
				waited += each
			}
		}
	}
	stuck.Add(1)
	if state.CompareAndSwap(running, abandoned) {
		return out, waited, ErrNoAnswer
	}
	stuck.Add(-1)
	<-came
	return got, waited, failed
}

// waits reports whether a thread of this process waits in a system call for anything but
// its turn to run: Go's runtime has threads wait for that by a futex. Where the kernel
// doesn't say it, it does.
func waits(tid int) bool {
	if tid == 0 {
		return false // it has not begun
	}
	var b [256]byte
	text, err := procfs.Read(procfs.Task("/proc/self").Thread(tid).Path("syscall"), b[:])
	if err != nil {
		return true
	}
	return !bytes.HasPrefix(text, []byte("running")) && !bytes.HasPrefix(text, []byte(futexCall))
}

// futexCall is how the kernel's file says that a thread is in futex(2).
const futexCall = "202 "

// Within calls do, which reads what a program may keep from being read (its
// memory, where a page is filled by a program, a file of such a file system), and
// waits for it as long as one look may wait. After ErrNoAnswer do is still running,
// on a goroutine of its own, or will never be run; what it gives then is closed if
// it can be.
func Within[T any](do func() (T, error)) (T, error) {
	out, _, err := bounded(patience, do, func(v T) {
		if c, ok := any(v).(io.Closer); ok {
			_ = c.Close()
		}
	})
	return out, err
}
