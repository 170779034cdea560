package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/probe/ring"
)

// ErrNoAnswer says that the kprobe that traces a process does not answer.
var ErrNoAnswer = errors.New("it does not answer")

// askTime bounds how long an answer is waited for where ctx has no deadline:
// what is asked may take as long as arming ten thousand probes.
const askTime = 10 * time.Second

// deafTime is how long a request may lie unread.
const deafTime = 2 * time.Second

// Add asks the session to add definitions, as Session.Add does: all of them or
// none, in all of its processes. It returns when the probes are in. In a process
// that doesn't map a definition's library the definition waits for it, as those
// do that Options.Pending lets wait.
//
// Errors are those of Session.Add, of the definitions given here; ErrNotTraced
// and symbols.ErrGone when the session or the process ends; ErrNoAnswer.
func (l *Live) Add(ctx context.Context, defs []*fetch.Def) error {
	if len(defs) == 0 {
		return nil
	}
	if l.Detached {
		return l.leaveMore(ctx, defs)
	}
	return l.ask(ctx, remoteRequest{Op: "add", Defs: packDefs(defs)}, defs)
}

// Remove asks the session to remove events, named GRP/EVENT, as Session.Remove
// does. It returns when they are out and their hits with the session's sink.
// Errors are ErrNoEvent and those of Add.
func (l *Live) Remove(ctx context.Context, events []string) error {
	if len(events) == 0 {
		return nil
	}
	if l.Detached {
		return l.takeOut(ctx, func(p *ring.ProbeState) bool { return slices.Contains(events, p.Name) })
	}
	return l.ask(ctx, remoteRequest{Op: "remove", Events: events}, nil)
}

// Delete asks the session to remove what deletions (fetch.Delete) name:
// events, or some of an event's places. Where a deletion names a file, it may
// call it by another name than the definition that it takes out did. Errors are
// those of Remove; then nothing is removed.
func (l *Live) Delete(ctx context.Context, deletions []*fetch.Def) error {
	if len(deletions) == 0 {
		return nil
	}
	if l.Detached {
		return l.deleteLeft(ctx, deletions)
	}
	return l.ask(ctx, remoteRequest{Op: "remove", Defs: packDefs(deletions)}, deletions)
}

// ask posts a request and waits until it is done.
func (l *Live) ask(ctx context.Context, q remoteRequest, defs []*fetch.Def) error {
	return l.askFor(ctx, q, defs, &remoteAnswer{})
}

// askFor posts a request and waits for its answer.
func (l *Live) askFor(ctx context.Context, q remoteRequest, defs []*fetch.Def, into *remoteAnswer) error {
	body, err := json.Marshal(q)
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	box, layout, closeBox, err := l.mailbox()
	if err != nil {
		return err
	}
	defer closeBox()
	r := &ring.Request{ID: rand.Uint64() | 1, PID: uint32(os.Getpid()), Body: body}
	if err := r.Post(box, layout); err != nil {
		if errors.Is(err, ring.ErrMail) {
			return fmt.Errorf("too many definitions for one request: %w", err)
		}
		return l.ended(err)
	}
	posted := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 10*time.Millisecond) {
		answer, taken, done, err := ring.ReadAnswer(box, layout, r.ID)
		if err != nil {
			return l.ended(err)
		}
		if done {
			if err := unpackAnswer(answer, defs, into); err != nil {
				return err
			}
			return l.Refresh()
		}
		if _, err := l.file().ReadAt(make([]byte, 8), 0); err != nil {
			return l.ended(err) // the session is over; its kprobe may live on
		}
		if procfs.StartTime(l.Tracer) != l.snap.Header.TracerStart {
			return ErrNotTraced
		}
		if !taken && time.Since(posted) > deafTime {
			return l.unanswered()
		}
		select {
		case <-ctx.Done():
			return l.unanswered()
		case <-time.After(pause):
		}
	}
}

// unanswered is the error of a kprobe that does not answer.
func (l *Live) unanswered() error {
	return fmt.Errorf("kprobe, process %d, traces process %d: %w; if it was stopped, kill -CONT %d lets it go on",
		l.Tracer, l.PID, ErrNoAnswer, l.Tracer)
}

// lock waits until no other kprobe is asking the session. The lock is one on
// the process's memory file in /proc, and ends with the process that holds it.
func (l *Live) lock(ctx context.Context) (unlock func(), err error) {
	conn, err := l.mem.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("lock the memory of process %d: %w", l.PID, err)
	}
	for {
		var ferr error
		if err := conn.Control(func(fd uintptr) { ferr = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
			return nil, fmt.Errorf("lock the memory of process %d: %w", l.PID, err)
		}
		if ferr == nil {
			return func() { _ = conn.Control(func(fd uintptr) { _ = unix.Flock(int(fd), unix.LOCK_UN) }) }, nil
		}
		if !errors.Is(ferr, unix.EWOULDBLOCK) && !errors.Is(ferr, unix.EINTR) {
			return nil, fmt.Errorf("lock the memory of process %d: %w", l.PID, ferr)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("others are asking kprobe, process %d, all the time: %w", l.Tracer, ErrNoAnswer)
		case <-time.After(2 * time.Millisecond):
		}
	}
}
