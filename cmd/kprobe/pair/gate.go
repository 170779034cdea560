package pair

import (
	"bytes"
	"io"
	"sync"
	"time"

	"kprobe/internal/procfs"
)

// What the tracer writes while the supervisor is stopped
//
// A job that is stopped (^Z, SIGSTOP, SIGTTOU) writes nothing until it is
// continued. The supervisor alone is stopped: the tracer, in a process group of its
// own, goes on answering for the traced processes, which would stand still
// without it. Its output waits at a gate:
//
//	open     what is written goes through
//	closed   the supervisor has said that it is about to stop, or was seen stopped.
//	         Hits wait in their Write, so that the rings fill up and what doesn't
//	         fit is counted as lost; messages are held, the last of them if they
//	         are many. Both go through when the supervisor has said that it was
//	         continued, or has gone.
//	ending   closed, and the trace ends: hits don't wait any more, as what is left
//	         of them is bounded by the rings; they are held, too.
type gate struct {
	mu         sync.Mutex
	change     sync.Cond
	supervisor int       // its process id
	closed     bool      // guarded by mu
	ending     bool      // guarded by mu
	looked     time.Time // guarded by mu: when the supervisor was seen not to be stopped
}

// lookEvery is how long the supervisor is believed to be running. A stop that it was
// not asked about (SIGSTOP) is noticed no later.
const lookEvery = 50 * time.Millisecond

// heldMost is how many bytes of messages are held for a supervisor that is stopped.
const heldMost = 64 << 10

func newGate(supervisor int) *gate {
	g := &gate{supervisor: supervisor}
	g.change.L = &g.mu
	return g
}

func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.looked = closed, time.Now()
	g.change.Broadcast()
}

// end has hits held that would wait.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending = true
	g.change.Broadcast()
}

// look closes the gate if the supervisor is stopped. g.mu is held.
func (g *gate) look() {
	if g.closed || time.Since(g.looked) < lookEvery {
		return
	}
	g.looked = time.Now()
	if !stopped(g.supervisor) {
		return
	}
	g.closed = true
	// It may have been continued, and have said so, since it was looked at.
	if !stopped(g.supervisor) {
		g.closed = false
	}
}

// stopped reports whether job control has a process stopped (proc_pid_stat(5)).
func stopped(pid int) bool {
	st, _ := procfs.Process(pid).Stat()
	return st.State() == 'T'
}

// gated is a writer behind the gate.
type gated struct {
	g     *gate
	waits bool // else what is written is held

	mu   sync.Mutex
	w    io.Writer // guarded by mu
	held []byte    // guarded by mu
	cut  bool      // guarded by mu: some of held was dropped
}

// Write implements io.Writer.
func (o *gated) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.pass() {
		o.held = append(o.held, p...)
		if !o.waits && len(o.held) > heldMost {
			over := o.held[len(o.held)-heldMost:]
			if i := bytes.IndexByte(over, '\n'); i >= 0 {
				over = over[i+1:]
			}
			o.held, o.cut = append([]byte(nil), over...), true
		}
		return len(p), nil
	}
	if err := o.release(); err != nil {
		return 0, err
	}
	return o.w.Write(p)
}

// pass reports whether what is written may go through, having waited for that if
// it may.
func (o *gated) pass() bool {
	g := o.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.look()
	for o.waits && g.closed && !g.ending {
		g.change.Wait()
	}
	return !g.closed
}

// release writes what is held. o.mu is held.
func (o *gated) release() error {
	if len(o.held) == 0 {
		return nil
	}
	if o.cut {
		if _, err := io.WriteString(o.w, "kprobe: warning: earlier messages were dropped while it was stopped\n"); err != nil {
			return err
		}
	}
	_, err := o.w.Write(o.held)
	o.held, o.cut = nil, false
	return err
}

// flush writes what is held once the gate is open.
func (o *gated) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.g.mu.Lock()
	closed := o.g.closed
	o.g.mu.Unlock()
	if !closed {
		_ = o.release() // nobody is left to be told
	}
}

// Output gives w for hits: while the supervisor is stopped its Write waits, until
// Ending. A nil link gives w itself, as do those below.
func (l *Link) Output(w io.Writer) io.Writer { return l.behind(w, true) }

// Messages gives w for messages: while the supervisor is stopped they are held.
func (l *Link) Messages(w io.Writer) io.Writer { return l.behind(w, false) }

func (l *Link) behind(w io.Writer, waits bool) io.Writer {
	if l == nil {
		return w
	}
	o := &gated{g: l.gate, waits: waits, w: w}
	l.mu.Lock()
	l.outputs = append(l.outputs, o)
	l.mu.Unlock()
	return o
}

// Ending says that the trace ends: hits don't wait for the supervisor any more.
func (l *Link) Ending() {
	if l != nil {
		l.gate.end()
	}
}

// Drain waits, when everything is done, until the supervisor isn't stopped, and writes
// what is held for it.
func (l *Link) Drain() {
	if l == nil {
		return
	}
	g := l.gate
	g.mu.Lock()
	for g.closed {
		g.change.Wait()
	}
	g.mu.Unlock()
	l.flushAll()
}

func (l *Link) flushAll() {
	l.mu.Lock()
	outputs := l.outputs
	l.mu.Unlock()
	for _, o := range outputs {
		o.flush()
	}
}
