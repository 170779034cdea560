//go:build linux && amd64

package tracee

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Answers outside Run
//
// A traced thread stops at every signal, and continues when the tracer has answered. So the
// tracer's thread must not be busy with anything else for long. Long work is done on another
// goroutine (Away), or calls Answer now and then. The thread also answers between two jobs,
// before Run and after it. An answer that would interfere with the work in progress is put off;
// EarlyHandler decides which.

// EarlyHandler is a Handler that also answers outside Run. The tracer must know it before
// (Handle).
type EarlyHandler interface {
	Handler
	// Early reports whether the stop of a thread can be answered now, while nobody runs the
	// tracer or other work is in progress. If not, it is asked again later, or the stop
	// waits for Run.
	Early(t *Thread) bool
}

// Stop is a kind of stop, as far as an EarlyHandler needs to know.
type Stop uint8

// The kinds.
const (
	StopOther Stop = iota // a signal, a thread that comes or ends, job control
	StopTrap              // SIGTRAP: a breakpoint, a step, or the signal
	StopFork              // the thread has made a process, by fork or vfork
	StopExec              // the process has executed a program
)

// Stop returns the kind of the thread's present stop.
func (t *Thread) Stop() Stop {
	switch t.status >> 16 {
	case unix.PTRACE_EVENT_EXEC:
		return StopExec
	case unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK:
		return StopFork
	case 0:
		if t.status.StopSignal() == syscall.SIGTRAP {
			return StopTrap
		}
	}
	return StopOther
}

// mayAnswer returns the handler's Early; nil if it has none.
func (t *Tracer) mayAnswer() func(*Thread) bool {
	if h, ok := t.handler.(EarlyHandler); ok && !t.broken {
		return h.Early
	}
	return nil
}

// Answer handles the events that have arrived, as far as the handler's Early allows, and waits
// for none. If they never end, it returns after about the time most. Long work on the tracer's
// thread calls it; inside itself it does nothing. Its errors are those of Run.
func (t *Tracer) Answer(most time.Duration) error {
	may := t.mayAnswer()
	if may == nil || t.answering {
		return nil
	}
	t.answering = true
	defer func() { t.answering = false }()
	for end := time.Now().Add(most); len(t.procs) > 0; {
		some, err := t.once(unix.WNOHANG, may)
		if err != nil || !some || time.Now().After(end) {
			return err
		}
	}
	return nil
}

// Away runs fn on another goroutine, and answers as Answer does until fn has returned. fn must
// not touch anything that a handler changes. Away is called on the tracer's thread. If it can't
// answer, it runs fn itself.
func (t *Tracer) Away(fn func()) error {
	may := t.mayAnswer()
	if may == nil || t.answering || len(t.procs) == 0 {
		fn()
		return nil
	}
	t.answering = true
	defer func() { t.answering = false }()
	done, seen := make(chan struct{}), make(chan struct{})
	defer close(seen)
	go func() {
		fn()
		close(done)
		for tick := time.NewTicker(wakeEvery); ; {
			t.wake()
			select {
			case <-seen:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	for {
		select {
		case <-done:
			return nil
		default:
		}
		if len(t.procs) == 0 {
			<-done
			return nil
		}
		if _, err := t.once(0, may); err != nil {
			<-done
			return err
		}
	}
}

// idle answers until there is something to do.
func (t *Tracer) idle() {
	may := t.mayAnswer()
	if may == nil || len(t.procs) == 0 {
		<-t.notify
		return
	}
	for t.queued.Load() == 0 && len(t.procs) > 0 {
		if _, err := t.once(0, may); err != nil {
			t.broken = true // Run meets the same, and says it
			return
		}
	}
}
