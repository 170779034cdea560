package recorder

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/probe/book"
	"kprobe/probe/flight"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// ErrNoRings says that a file holds no rings: it is no memory file that was kept
// (--keep), nor a core dump of a process with probes that were left alone.
var ErrNoRings = errors.New("it holds no hits of detached probes")

// OpenFile opens the rings in a memory file that was kept (Options.Keep), or in a core
// dump, whose process may be gone, or was another machine's. missing are the files that it
// had mapped and that are not here, or are others by now: their addresses are named as far
// as the book does. Close it.
//
// Errors are ErrNoRings, and those of flight.New.
func OpenFile(name string) (r *Recorder, missing []string, err error) {
	// O_NONBLOCK: a FIFO's writer isn't waited for.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("it %w", untrusted.ErrIrregular)
	}
	parts, dump, err := ringsIn(f, info.Size())
	if err != nil {
		return nil, nil, err
	}
	r = &Recorder{mem: f, dump: dump}
	failed := ErrNoRings
	for _, p := range parts {
		one, err := openDead(p, !dump)
		if err != nil {
			if !errors.Is(err, flight.ErrNoRecorder) {
				failed = err
			}
			continue
		}
		r.set = append(r.set, one)
	}
	if dump {
		r.lacks = lackingIn(f, info.Size(), r.set)
	}
	if len(r.set) == 0 {
		if errors.Is(failed, ErrNoRings) {
			failed = r.lacks.asError()
		}
		return nil, nil, failed
	}
	b := r.set[0].Book
	r.PID, r.gone = b.PID, !runs(b)
	var told []symbols.Told
	for _, one := range r.set {
		told = append(told, toldBy(one.Book)...)
	}
	space, missing := new(symbols.Cache).OpenRecorded(recordedModules(b), told)
	for _, one := range r.set {
		one.Name(space)
	}
	return r, missing, nil
}

// ringsIn finds the memory files in a file, which may be a core dump.
func ringsIn(f *os.File, size int64) (parts []*io.SectionReader, dump bool, err error) {
	var magic [len(ring.Magic)]byte
	if _, err := f.ReadAt(magic[:], 0); err != nil {
		return nil, false, ErrNoRings
	}
	if string(magic[:]) == ring.Magic {
		return []*io.SectionReader{io.NewSectionReader(f, 0, size)}, false, nil
	}
	if tool := packedBy(magic); tool != "" {
		return nil, false, fmt.Errorf("%w: it is compressed; unpack it first (%s -d)", ErrNoRings, tool)
	}
	parts, err = flight.InCore(f, size)
	if errors.Is(err, flight.ErrNotCore) {
		return nil, false, ErrNoRings
	}
	return parts, true, err
}

// openDead opens a memory file, to which nobody may write any more. kept says that it is one with
// a name: its hits stay when its probes are taken out. In a core dump such a file is that of a
// session which has read its rings itself, and nobody writes to the dump even if the process runs on.
func openDead(p *io.SectionReader, kept bool) (*flight.Reader, error) {
	_, l, err := ring.ReadHeader(p, 0)
	if err != nil {
		return nil, err
	}
	if l.Code.Off > p.Size() {
		return nil, fmt.Errorf("%w: it has %d bytes of %d", ring.ErrCorrupt, p.Size(), l.Code.Off)
	}
	o := flight.Options{Removed: kept}
	b, err := flight.ReadBook(p, l)
	if err != nil {
		return nil, err
	}
	if b.Boot == procfs.BootID() && b.Boot != "" {
		o.Clock = ring.SystemClock{}
	}
	o.Dead = !kept || !runs(b)
	return flight.New(p, o)
}

// runs reports whether the process of a book runs here.
func runs(b *book.Book) bool {
	return b.Boot != "" && b.Boot == procfs.BootID() && procfs.Runs(b.PID, b.Start)
}

func recordedModules(b *book.Book) (out []symbols.Recorded) {
	for i := range b.Modules {
		m := &b.Modules[i]
		out = append(out, symbols.Recorded{Path: m.Path, BuildID: m.BuildID, Main: m.Main, Bias: m.Bias, Maps: m.Maps})
	}
	return out
}

func toldBy(b *book.Book) (out []symbols.Told) {
	for i := range b.Probes {
		if p := &b.Probes[i]; p.Symbol != "" && p.Off <= p.Addr {
			out = append(out, symbols.Told{Start: symbols.Addr(p.Addr - p.Off), Size: p.Size, Name: p.Symbol})
		}
	}
	return out
}
