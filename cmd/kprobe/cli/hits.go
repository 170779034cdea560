package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"kprobe/internal/quote"
	"kprobe/output/recording"
	"kprobe/probe"
)

// hitsFile names what hits are read from: a recording, a file with rings, or a process.
type hitsFile struct {
	name string // of a file
	pid  int    // whose rings are read; 0: a file's are
	// again says that the user was told of it before.
	again bool
}

// String names it to a person.
func (h hitsFile) String() string {
	if h.pid != 0 {
		return fmt.Sprintf("process %d", h.pid)
	}
	return h.name
}

// memoryGoal is how much memory reading a recording of any length should take.
const memoryGoal = 400 << 20

// openHits opens a recording to read, or what a recorder holds as if it had been recorded.
func (d *Deps) openHits(ctx context.Context, m *messages, h hitsFile) (*recording.Reader, func() error, error) {
	debug.SetMemoryLimit(memoryGoal) // garbage is collected more often rather than more is taken
	if h.pid == 0 {
		stop := m.sayFIFO(h.name)
		in, done, err := openRecording(h.name)
		stop()
		if !errors.Is(err, recording.ErrNotRecording) {
			return in, done, err
		}
		r, berr := d.blackBox(m, h.name)
		if errors.Is(berr, probe.ErrNoRings) {
			return nil, nil, fail(fmt.Errorf("%s: %w, and %w", h.name, recording.ErrNotRecording, berr))
		}
		if berr != nil {
			return nil, nil, fail(fmt.Errorf("%s: %w", h.name, berr))
		}
		return readHeld(ctx, m, h, r)
	}
	r, err := d.recorder(h.pid)
	if err != nil {
		return nil, nil, fail(err)
	}
	return readHeld(ctx, m, h, r)
}

// readHeld reads what a recorder holds. It is recorded as it is read.
func readHeld(ctx context.Context, m *messages, h hitsFile, r Recorder) (*recording.Reader, func() error, error) {
	held, err := r.Held()
	if err != nil {
		return nil, nil, fail(both(err, r.Close()))
	}
	lines := held.Lacks()
	if line := held.SnapshotLine(); line != "" {
		lines = append(lines, line)
	}
	for _, line := range lines {
		if !h.again {
			m.say("%s", line)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	from, to := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		rec, err := recording.To(to, heldHeader(&held))
		if err == nil {
			err = r.Snapshot(ctx, 0, rec)
		}
		if err == nil {
			err = endHeld(rec, r)
		}
		to.CloseWithError(err) // nil is the end
	}()
	over := func() error {
		stop()
		err := from.Close()
		<-done
		return both(err, r.Close())
	}
	in, err := recording.NewReader(from)
	if err != nil {
		return nil, nil, fail(both(err, over()))
	}
	return in, over, nil
}

// reading shows on a terminal how far a file was read, until stop is called.
func (d *Deps) reading(m *messages, from hitsFile, in *recording.Reader) (stop func()) {
	info, err := os.Stat(from.name)
	if err != nil || !info.Mode().IsRegular() {
		return func() {}
	}
	b := m.busy(d.Watched, "reading "+from.name)
	if tell := b.progress(); tell != nil {
		in.Progress = func(at int64) { tell("reading "+from.name+", MB", int(at>>20), int(info.Size()>>20)) }
	}
	return b.stop
}

// openRecording opens a recording to read.
func openRecording(name string) (*recording.Reader, func() error, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, fail(ofFile(name, err))
	}
	r, err := recording.NewReader(f)
	if err != nil {
		return nil, nil, fail(fmt.Errorf("recording %s: %w", name, errors.Join(err, f.Close())))
	}
	return r, f.Close, nil
}

// fifoSays is how long a FIFO is waited for without a word.
const fifoSays = time.Second

// sayFIFO says that kprobe waits, if name is a FIFO and stop isn't called soon.
func (m *messages) sayFIFO(name string) (stop func()) {
	info, err := os.Stat(name)
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return func() {}
	}
	t := time.AfterFunc(fifoSays, func() { m.say("%s is a FIFO: kprobe waits until a recording is written to it", quote.Plain(name)) })
	return func() { t.Stop() }
}

// isRecording reports whether a file begins as a recording does.
func isRecording(name string) bool {
	_, done, err := openRecording(name)
	return err == nil && done() == nil
}

// records reports whether probes were left in a process.
func (d *Deps) records(pid int) bool {
	r, err := d.Engine.Recorder(pid)
	if err != nil {
		return false
	}
	_ = r.Close() // it was read only
	return true
}
