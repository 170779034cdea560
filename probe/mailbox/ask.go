package mailbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/probe/memory"
	"kprobe/probe/ring"
)

// ErrNoAnswer says that the kprobe that traces a process does not answer.
var ErrNoAnswer = errors.New("it does not answer")

// askTime bounds how long an answer is waited for where ctx has no deadline:
// what is asked may take as long as arming ten thousand probes.
const askTime = 10 * time.Second

// deafTime is how long a request may lie unread.
const deafTime = 2 * time.Second

// Peer is a session of another kprobe, as who asks it knows it.
type Peer struct {
	PID    int           // the process that is traced
	Tracer int           // the kprobe that traces it
	File   memory.Window // the memory file in the process
	Layout *ring.Layout  // of that
	// Alive says why nobody will answer any more; nil while the session goes on.
	Alive func() error
	// Ended says what a failed read or write of File means.
	Ended func(error) error
}

// Ask posts a request and waits until it is done. It returns the answer's body.
//
// Errors are those of Alive and Ended, ErrNoAnswer, ring.ErrMail for a request that
// is too large, and those of opening and locking memory.
func (p *Peer) Ask(ctx context.Context, q *Request) ([]byte, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	unlock, err := p.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	box, layout, closeBox, err := p.open()
	if err != nil {
		return nil, err
	}
	defer closeBox()
	r := &ring.Request{ID: rand.Uint64() | 1, PID: uint32(os.Getpid()), Body: body}
	if err := r.Post(box, layout); err != nil {
		if errors.Is(err, ring.ErrMail) {
			return nil, fmt.Errorf("too many definitions for one request: %w", err)
		}
		return nil, p.Ended(err)
	}
	return p.wait(ctx, box, layout, r.ID)
}

// wait waits for the answer to a request.
func (p *Peer) wait(ctx context.Context, box memory.Window, layout *ring.Layout, id uint64) ([]byte, error) {
	posted := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 10*time.Millisecond) {
		body, taken, done, err := ring.ReadAnswer(box, layout, id)
		if err != nil {
			return nil, p.Ended(err)
		}
		if done {
			return body, nil
		}
		if err := p.Alive(); err != nil {
			return nil, err
		}
		if !taken && time.Since(posted) > deafTime {
			return nil, p.unanswered()
		}
		select {
		case <-ctx.Done():
			return nil, p.unanswered()
		case <-time.After(pause):
		}
	}
}

// open gives the mailbox to ask by, and closes it.
func (p *Peer) open() (box memory.Window, layout *ring.Layout, closeBox func(), err error) {
	own, err := openOwn(p.Tracer, p.PID)
	if err != nil {
		return memory.Window{}, nil, nil, err
	}
	if own == nil {
		return p.File, p.Layout, func() {}, nil
	}
	return *own, ownLayout, func() { own.Mem.Close() }, nil
}

// unanswered is the error of a kprobe that does not answer.
func (p *Peer) unanswered() error {
	return fmt.Errorf("kprobe, process %d, traces process %d: %w; if it was stopped, kill -CONT %d continues it",
		p.Tracer, p.PID, ErrNoAnswer, p.Tracer)
}

// Lock waits until no other kprobe is asking the session. The lock is one on
// the process's memory file in /proc, and ends with the process that holds it.
func (p *Peer) Lock(ctx context.Context) (unlock func(), err error) {
	conn, err := p.File.Mem.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("lock the memory of process %d: %w", p.PID, err)
	}
	for {
		var ferr error
		if err := conn.Control(func(fd uintptr) { ferr = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
			return nil, fmt.Errorf("lock the memory of process %d: %w", p.PID, err)
		}
		if ferr == nil {
			return func() { _ = conn.Control(func(fd uintptr) { _ = unix.Flock(int(fd), unix.LOCK_UN) }) }, nil
		}
		if !errors.Is(ferr, unix.EWOULDBLOCK) && !errors.Is(ferr, unix.EINTR) {
			return nil, fmt.Errorf("lock the memory of process %d: %w", p.PID, ferr)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("kprobe, process %d, is busy with requests of others: %w", p.Tracer, ErrNoAnswer)
		case <-time.After(2 * time.Millisecond):
		}
	}
}
