package output

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"
)

// ErrClosed is returned when nobody reads the output any more: the other end of the pipe or
// socket is closed.
var ErrClosed = errors.New("output is closed")

// FlushDelay is the longest time that a line waits in a Writer while lines keep coming. It is
// well below the 100 ms within which the reader of a pipe is promised to see a hit.
const FlushDelay = 20 * time.Millisecond

// flushSize is the number of bytes at which a Writer flushes without waiting.
// It is a pipe's capacity on Linux (pipe(7)): one write fills it.
const flushSize = 64 << 10

// Writer collects whole lines and passes them on in few writes. A line that
// comes after a pause of FlushDelay is written at once; lines that follow
// within it are written together, FlushDelay later at most.
//
// Its methods may be called from several goroutines. After the first failure
// every call returns that failure; Flush and Close report it too, so that a
// caller may look once at the end.
type Writer struct {
	mu    sync.Mutex
	w     io.Writer   // guarded by mu
	buf   []byte      // guarded by mu
	err   error       // guarded by mu: the first failure
	timer *time.Timer // runs while busy
	busy  bool        // guarded by mu: a line was written less than FlushDelay ago
	done  bool        // guarded by mu: Close was called
}

// NewWriter returns a Writer to w. Close it to write what it still holds.
func NewWriter(w io.Writer) *Writer {
	o := &Writer{w: w, buf: make([]byte, 0, flushSize+4096)}
	o.timer = time.AfterFunc(time.Hour, o.tick)
	o.timer.Stop()
	return o
}

// Write appends the line or lines in p, which must end with a newline. It
// returns ErrClosed, wrapped, once the reader has gone.
func (o *Writer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	o.buf = append(o.buf, p...)
	switch {
	case o.done || len(o.buf) >= flushSize:
		o.flush()
	case !o.busy:
		// The first line after a pause goes out at once; what follows soon
		// waits for the timer.
		o.busy = true
		o.flush()
		o.timer.Reset(FlushDelay)
	}
	if o.err != nil {
		return 0, o.err
	}
	return len(p), nil
}

// Flush writes what is held.
func (o *Writer) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
	return o.err
}

// Close writes what is held and stops the timer. It does not close the
// underlying writer. Lines written later are passed on at once.
func (o *Writer) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	o.timer.Stop()
	o.flush()
	return o.err
}

// Err returns the first failure, nil if there was none.
func (o *Writer) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *Writer) tick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return
	}
	if len(o.buf) == 0 {
		o.busy = false
		return
	}
	o.flush()
	o.timer.Reset(FlushDelay)
}

// flush writes the buffer. mu must be held.
func (o *Writer) flush() {
	if len(o.buf) == 0 || o.err != nil {
		return
	}
	_, err := o.w.Write(o.buf)
	o.buf = o.buf[:0]
	if err != nil {
		o.err = writeError(err)
	}
}

// writeError names the failures that mean that nobody reads any more.
func writeError(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrClosedPipe) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return fmt.Errorf("write output: %w", err)
}
