package recording

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"kprobe/probe/results"
	"kprobe/symbols"
)

// Recorder is the results.Sink that keeps hits in a file.
type Recorder struct {
	// Limit is the number of hits after which the trace ends; 0 is none.
	Limit uint64

	name    string
	file    *os.File // nil: what is written goes elsewhere
	created bool     // file wasn't there
	header  *Header
	pack    bool
	once    sync.Once
	early   []*keeper // guarded by mu: of before the beginning
	err     error     // why it couldn't begin
	w       *Writer   // guarded by mu until the recording has begun
	conv    Converter
	mu      sync.Mutex
	spaces  map[*symbols.Space]int // guarded by mu: how many modules were recorded
	last    *symbols.Space         // of the last hit
}

// FileError is that a recording can't go on: what it holds until then is whole.
type FileError struct {
	Name string
	Hits uint64
	Err  error
}

// Error implements error.
func (e *FileError) Error() string {
	var path *os.PathError
	cause := e.Err
	if errors.As(cause, &path) {
		cause = path.Err
	}
	return fmt.Sprintf("write %s: %v; the %d hits that it has can be read", e.Name, cause, e.Hits)
}

// Unwrap gives the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Create opens a file for a recording, whose header h is; pack says that records are to be
// compressed. A file that is there keeps what it has until the recording begins: with the
// first process or hit, or when it is closed.
func Create(name string, h *Header, pack bool) (*Recorder, error) {
	r := &Recorder{name: name, header: h, pack: pack, spaces: map[*symbols.Space]int{}}
	const mode = 0o600 // arguments may be secrets
	var err error
	if r.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode); err == nil {
		r.created = true
	} else if r.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, mode); err != nil {
		return nil, err
	}
	return r, nil
}

// begin begins the recording, if that wasn't done.
func (r *Recorder) begin() error {
	r.once.Do(func() {
		if r.file == nil {
			return
		}
		err := r.file.Truncate(0)
		if errors.Is(err, unix.EINVAL) {
			err = nil // a device, or a pipe
		}
		w, werr := NewWriter(r.file, r.header)
		if err == nil {
			err = werr
		}
		if err != nil {
			r.err = &FileError{Name: r.name, Err: err}
			return
		}
		if r.pack {
			// It fails only with options that don't exist.
			w.out.pack, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(MaxBlock))
		}
		w.out.begin()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, k := range r.early {
			w.register(k)
		}
		r.w, r.early = w, nil
	})
	return r.err
}

// Begun reports whether the recording has begun.
func (r *Recorder) Begun() bool { return r.writer() != nil || r.err != nil }

// Abandon gives a recording up that hasn't begun: the file is what it was.
func (r *Recorder) Abandon() error {
	err := r.file.Close()
	if r.created {
		err = errors.Join(err, os.Remove(r.name))
	}
	return err
}

// writer is what writes, nil before the recording begins.
func (r *Recorder) writer() *Writer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.w
}

// To begins a recording that goes to w.
func To(w io.Writer, h *Header) (*Recorder, error) {
	out, err := NewWriter(w, h)
	if err != nil {
		return nil, err
	}
	return &Recorder{w: out, spaces: map[*symbols.Space]int{}}, nil
}

// Hit implements results.Sink.
func (r *Recorder) Hit(h *results.Hit) error {
	if err := r.begin(); err != nil {
		return err
	}
	if r.Limit != 0 && r.w.Hits() >= r.Limit {
		return results.ErrStop
	}
	if h.Space != nil && h.Space != r.last {
		r.last = h.Space
		if err := r.modules(h.Space, false); err != nil {
			return r.failed(err)
		}
	}
	hit, err := r.conv.Convert(h)
	if err != nil {
		return err
	}
	if err := r.w.Hit(hit); err != nil {
		return r.failed(err)
	}
	if r.Limit != 0 && r.w.Hits() == r.Limit {
		return results.ErrStop
	}
	return nil
}

// modules records what a process has mapped: at its first hit, and at the end
// where there is more by then.
func (r *Recorder) modules(s *symbols.Space, again bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, seen := r.spaces[s]
	if seen && !again || !seen && len(r.spaces) >= maxModules {
		return nil
	}
	list := s.Modules()
	if seen && n == len(list) {
		return nil
	}
	r.spaces[s] = len(list)
	m := Modules{PID: s.PID()}
	for _, x := range list {
		one := Module{Path: cut(x.Path), Main: x.Main, Bias: x.Bias}
		if x.File != nil {
			one.BuildID = x.File.BuildID
		}
		if len(x.Maps) > 0 {
			one.Start, one.End = uint64(x.Maps[0].Start), uint64(x.Maps[len(x.Maps)-1].End)
		}
		if m.List = append(m.List, one); len(m.List) == 1000 {
			break
		}
	}
	return r.w.Modules(&m)
}

// failed makes the file end where its last whole block does.
func (r *Recorder) failed(err error) error {
	bytes, hits := r.w.out.written()
	// If that fails too, a reader finds the end all the same.
	if r.file != nil {
		_ = r.file.Truncate(bytes)
	}
	return &FileError{Name: r.name, Hits: hits, Err: err}
}

// Flush writes what waits, so that a crash doesn't take it.
func (r *Recorder) Flush() error {
	if w := r.writer(); w != nil {
		return w.Flush()
	}
	return r.err
}

// Hits is how many hits the recording has.
func (r *Recorder) Hits() uint64 {
	if w := r.writer(); w != nil {
		return w.Hits()
	}
	return 0
}

// Size is the file's size in bytes.
func (r *Recorder) Size() int64 {
	if w := r.writer(); w != nil {
		return w.Size()
	}
	return 0
}

// Close ends the recording with what became of its events' hits.
func (r *Recorder) Close(stats []results.Stats) error { return r.CloseAfter(stats, 0) }

// CloseAfter is Close of hits of which so many older ones were overwritten.
func (r *Recorder) CloseAfter(stats []results.Stats, overwritten uint64) error {
	if err := r.begin(); err != nil {
		return errors.Join(err, r.file.Close())
	}
	var err error
	for s := range r.spaces {
		err = errors.Join(err, r.modules(s, true))
	}
	e := &End{Overwritten: overwritten}
	for _, s := range stats {
		e.Events = append(e.Events, Count{s.Event.Group, s.Event.Name, s.Hits, s.Recorded, s.Filtered, s.Lost, s.Limited, s.Missed})
	}
	werr := r.w.Close(e)
	r.w.out.end()
	if werr != nil {
		err = r.failed(werr)
	}
	if r.file == nil {
		return err
	}
	if cerr := r.file.Close(); cerr != nil && err == nil {
		err = &FileError{Name: r.name, Hits: r.w.Hits(), Err: cerr}
	}
	return err
}
