package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"kprobe/cmd/kprobe/pair"
)

const (
	// Alone is how long kprobe waits, after the supervisor was sent a signal, for
	// the terminal's copy of it. None came: the signal was for kprobe alone.
	alone = 100 * time.Millisecond
	// late is how much later than the copy the supervisor's may come on a machine that
	// is busy.
	late = time.Second
	// grace is how long a traced command may take to end by the signal that
	// ends the trace, so that its own exit status is known.
	grace = 300 * time.Millisecond
)

// ending are the signals that end a trace in order.
func ending() []os.Signal {
	s := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		s = append(s, syscall.SIGHUP)
	}
	return s
}

// interrupts ends a trace by cancelling its context: on a signal, or when the
// supervisor has gone.
//
// With a command that kprobe started, the signal goes to the command as well:
// ^C reaches it from the terminal, as it is in the supervisor's process group, where the
// tracer isn't (pair.Link.Apart); a signal that was sent to kprobe alone is passed
// on. The trace then goes on until the command has ended, for grace
// at most; a second signal ends it at once.
type interrupts struct {
	cancel context.CancelFunc
	// seen gets the signals that the command was sent.
	seen chan syscall.Signal

	mu      sync.Mutex
	command int            // guarded by mu: pid of the command that runs, 0 is none
	got     syscall.Signal // guarded by mu: the first signal, 0 is none
}

// watchSignals returns a context that is cancelled when the trace is to end.
// Call stop when the trace has ended.
func watchSignals(ctx context.Context, link *pair.Link) (run context.Context, in *interrupts, stop func()) {
	run, cancel := context.WithCancel(ctx)
	in = &interrupts{cancel: cancel, seen: make(chan syscall.Signal, 1)}
	own := make(chan os.Signal, 8)
	signal.Notify(own, ending()...)
	// A closed pipe must come back as EPIPE from the write. The signal is
	// caught and not ignored, because what is ignored stays so in the command
	// that is started. It stays caught: what is left is written after the trace.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go in.loop(run, own, link)
	return run, in, cancel
}

// started names the command that gets signals too.
func (in *interrupts) started(pid int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.command = pid
}

// reached says that a process was sent a signal. If it is the command the
// terminal, or whoever sent it to the group, needs no help.
func (in *interrupts) reached(pid int, sig syscall.Signal) {
	in.mu.Lock()
	command := in.command
	in.mu.Unlock()
	if pid == command {
		select {
		case in.seen <- sig:
		default: // one waits unread: it says the same
		}
	}
}

// ended says that the command is no more.
func (in *interrupts) ended() { in.started(0) }

func (in *interrupts) loop(ctx context.Context, own <-chan os.Signal, link *pair.Link) {
	// The signals stay caught after the trace: a second ^C while probes are
	// taken out must not kill kprobe.
	defer in.cancel()
	var first, direct time.Time // of the first signal, and of the last that came by itself and not by the supervisor yet
	for {
		select {
		case <-ctx.Done():
			return
		case <-link.Gone():
			return
		case s := <-own:
			direct = time.Now()
			if in.note(s.(syscall.Signal), &first) {
				return
			}
		case <-in.seen:
			direct = time.Now()
		case s := <-link.Signals():
			if time.Since(direct) > late {
				select {
				case <-own: // the terminal's: the command has it too
				case <-in.seen:
				case <-time.After(alone):
					in.pass(s)
				}
			}
			direct = time.Time{}
			if in.note(s, &first) {
				return
			}
		}
	}
}

// note remembers a signal and reports whether the trace is to end now.
func (in *interrupts) note(s syscall.Signal, first *time.Time) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.got == 0:
		in.got, *first = s, time.Now()
		if in.command == 0 {
			return true
		}
		time.AfterFunc(grace, in.cancel)
		return false
	case time.Since(*first) <= 2*alone:
		return false // the same signal by the other way
	}
	return true
}

// signal gives the signal that ended the trace, 0 if none did.
func (in *interrupts) signal() syscall.Signal {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.got
}

// pass sends the command a signal that only kprobe was sent.
func (in *interrupts) pass(s syscall.Signal) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.command != 0 {
		// It may have ended: then there is nobody to tell.
		_ = syscall.Kill(in.command, s)
	}
}
