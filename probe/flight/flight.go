// Package flight reads the rings of a memory file that nobody empties: of a running process, of
// a file that has outlived its process, or of a core dump. It makes hits of the records, with
// what the file's book says about probes and process (probe/book). It touches no process.
//
// A program may have forged what it reads, to deceive the reader: the result is errors like
// ErrCorrupt, or fewer hits, and no harm.
package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/probe/book"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/symbols"
	"kprobe/symbols/unwind"
)

// ErrNoRecorder says that a memory file is that of a session which reads its rings
// itself.
var ErrNoRecorder = errors.New("its hits go to the kprobe that traces it")

// returnTail is what records of returns end with: the address returned to.
const returnTail = 8

// Options say how records are read.
type Options struct {
	// CPUs are those of the machine that the file was made on, 0: not known.
	CPUs int
	// Clock is the machine's, where the file is of its boot; nil: the file's own times
	// must do.
	Clock ring.Clock
	// Dead says that nobody writes to the file any more.
	Dead bool
	// Removed allows a file whose probes were taken out.
	Removed bool
	// Thread gives the number and the name of a thread by the number in a record; nil,
	// or a name of "", is not known.
	Thread func(tid uint32) (number int, comm string)
}

// Reader reads a memory file. It is for one goroutine.
type Reader struct {
	Header ring.Header
	Layout *ring.Layout
	Book   *book.Book

	r      io.ReaderAt
	o      Options
	view   *ring.View
	swaps  ring.Swaps // of which view is
	probes map[uint32]*probe
	space  *symbols.Space
	cal    *ring.Calibration
	hit    results.Hit
	vals   []byte
	// decoded is room for the values of a record.
	decoded []fetch.Value
	stack   stackWalk
	// Odd counts records that no probe of the book leaves.
	Odd uint64
}

// probe is a probe of the book.
type probe struct {
	*book.Probe
	event   *results.Event
	program *fetch.Program
}

// New reads a file's header and book.
func New(r io.ReaderAt, o Options) (*Reader, error) {
	h, l, err := ring.ReadHeader(r, o.CPUs)
	if err != nil {
		return nil, err
	}
	left := h.Mode&ring.ModeDetached != 0
	if !left && !o.Removed {
		return nil, ErrNoRecorder
	}
	b, err := ReadBook(r, l)
	if !left && errors.Is(err, book.ErrNone) {
		return nil, ErrNoRecorder // its probes were never left
	}
	if err != nil {
		return nil, err
	}
	f := &Reader{Header: *h, Layout: l, Book: b, r: r, o: o, view: ring.NewView(r, l)}
	return f, f.index()
}

// ReadBook reads the book of a file.
func ReadBook(r io.ReaderAt, l *ring.Layout) (*book.Book, error) {
	return book.Read(io.NewSectionReader(r, l.Book.Off, l.Book.Size))
}

func (f *Reader) index() error {
	programs, err := f.Book.Programs()
	if err != nil {
		return err
	}
	f.probes = map[uint32]*probe{}
	events := map[string]*results.Event{}
	for _, p := range programs {
		p.Symbols = namer{f}
	}
	for i := range f.Book.Probes {
		p := &f.Book.Probes[i]
		ev := events[p.Name()]
		if ev == nil {
			ev = &results.Event{Group: p.Group, Name: p.Event, Return: p.Return}
			if d, err := fetch.Parse(p.Def); err == nil {
				ev.Def = d
			}
			events[p.Name()] = ev
		}
		f.probes[p.ID] = &probe{p, ev, programs[p.Layout]}
	}
	return nil
}

// namer names addresses for values that are symbols.
type namer struct{ f *Reader }

// SymbolAt implements fetch.Symbolizer.
func (n namer) SymbolAt(a symbols.Addr) (name string, off, size uint64, ok bool) {
	if n.f.space == nil {
		return "", 0, 0, false
	}
	name, off, size, _, ok = n.f.space.NameAt(a, true)
	return name, off, size, ok
}

// Name has addresses named by a space, which may be that of files alone.
func (f *Reader) Name(space *symbols.Space) { f.space = space }

// Overwritten is how many hits were overwritten before they were read: those of before
// the first look, and since.
func (f *Reader) Overwritten() (before, since uint64) {
	return f.view.Before, f.view.Overwritten - f.view.Before
}

// Control is what the file says of whether hits are recorded.
func (f *Reader) Control() (ring.ControlState, error) {
	now := uint64(0)
	if f.o.Clock != nil && !f.o.Dead {
		now = ring.TakeSample(f.o.Clock).TSC
	}
	return ring.ReadControl(f.r, f.Layout, now)
}

// Taken is how many snapshots triggers have taken, and when the last one was,
// CLOCK_MONOTONIC in ns; 0 is not known.
func (f *Reader) Taken() (n, at uint64, err error) {
	s, err := f.readSwaps()
	if err != nil || s.At == 0 {
		return s.Taken, 0, err
	}
	if err := f.calibrate(); err != nil {
		return 0, 0, err
	}
	return s.Taken, uint64(max(f.cal.NS(s.At), 0)), nil
}

// Unfinished is how many records were begun and never finished, as far as they were met.
func (f *Reader) Unfinished() uint64 { return f.view.Unfinished }

// calibrate finds how time stamps become times.
func (f *Reader) calibrate() error {
	now := ring.Sample{}
	if f.o.Clock != nil {
		now = ring.TakeSample(f.o.Clock)
	}
	c, ok := f.Header.CalibrationOf(now)
	if !ok {
		return fmt.Errorf("%w: no clock", book.ErrCorrupt)
	}
	f.cal = c
	return nil
}

func (f *Reader) recalibrate() {
	if f.o.Clock != nil {
		f.cal.Update(ring.TakeSample(f.o.Clock))
	}
}

// errOdd says that a record isn't what the book says of it.
var errOdd = errors.New("a record is not what its description says")

func (f *Reader) one(r *ring.ViewRecord, sink results.Sink) error {
	p := f.probes[r.ID]
	if p == nil {
		return errOdd
	}
	data := r.Data
	h := &f.hit
	*h = results.Hit{
		Event: p.event, Program: p.program, Space: f.space,
		Time: uint64(f.cal.NS(r.TSC)), PID: f.Book.PID, TID: int(r.TID), CPU: r.CPU,
		IP: symbols.Addr(p.Addr),
	}
	if f.o.Thread != nil {
		h.TID, h.Comm = f.o.Thread(r.TID)
	}
	if h.Comm == "" {
		if h.Comm = unknown; h.TID == f.Book.PID {
			h.Comm = f.Book.Comm
		}
	}
	if p.Return {
		if len(data) < returnTail {
			return errOdd
		}
		h.RetIP = symbols.Addr(binary.LittleEndian.Uint64(data[len(data)-returnTail:]))
		h.Func = p.Func
		data = data[:len(data)-returnTail]
	}
	if p.program.Stack != nil && f.space != nil {
		f.walk(p, h, data)
	}
	h.Data = f.times(p, data)
	if !f.decodes(p.program, h.Data) {
		return errOdd
	}
	return sink.Hit(h)
}

// unknown is the name of a thread that isn't known, as the kernel prints it.
const unknown = "<...>"

// decodes reports whether a record can be decoded: its layout may be anything.
func (f *Reader) decodes(p *fetch.Program, data []byte) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	values, err := p.Decode(data, f.decoded[:0])
	if err == nil {
		f.decoded = values
	}
	return err == nil
}

// times converts the time stamps in values.
func (f *Reader) times(p *probe, data []byte) []byte {
	if len(p.Times) == 0 {
		return data
	}
	f.vals = append(f.vals[:0], data...)
	for _, off := range p.Times {
		if off >= 0 && off <= len(f.vals)-8 {
			b := f.vals[off:]
			binary.LittleEndian.PutUint64(b, uint64(f.cal.NS(binary.LittleEndian.Uint64(b))))
		}
	}
	return f.vals
}

// stackWalk is what stacks are worked out with.
type stackWalk struct {
	walker *symbols.Walker
	mem    unwind.Stack
	frames []symbols.StackFrame
}

// walk works out the stack of a hit.
func (f *Reader) walk(p *probe, h *results.Hit, data []byte) {
	pc := h.IP
	if p.Return {
		pc = h.RetIP
	}
	w := &f.stack
	regs, ok := p.program.Unwind(data, pc, &w.mem)
	if !ok {
		return
	}
	if p.Return && w.mem.AtReturn(regs.V[unwind.SP], uint64(h.RetIP)) {
		regs.V[unwind.SP] += 8
	}
	if w.walker == nil {
		w.walker = symbols.NewWalker(f.space)
	}
	w.frames, h.StackEnd = w.walker.Walk(w.frames[:0], regs, &w.mem, p.program.Stack.Frames)
	h.Stack = w.frames
}

// Count adds up what the rings hold, and the counters beside them, by event in the order
// of the book.
func (f *Reader) Count() ([]results.Stats, error) {
	s, err := ring.ReadSnapshot(f.r, f.o.CPUs)
	if err != nil {
		return nil, err
	}
	if err := s.CountHeld(f.r); err != nil {
		return nil, err
	}
	var out []results.Stats
	at := map[string]int{}
	for i := range s.Probes {
		p := &s.Probes[i]
		known := f.probes[p.ID]
		if known == nil || !strings.HasPrefix(known.Name(), p.Name) {
			continue
		}
		n, seen := at[known.Name()]
		if !seen {
			n = len(out)
			at[known.Name()] = n
			out = append(out, results.Stats{Event: known.event, Disabled: true})
		}
		st, c := &out[n], p.Counts
		st.Places++
		st.Hits += c.Hits
		st.Recorded += c.Recorded + c.Counted // what was overwritten, too
		st.Filtered += c.Filtered
		st.Lost += c.Lost
		st.Limited += c.Limited
		st.Missed += c.Missed
		st.Disabled = st.Disabled && p.Flags&ring.FlagEnabled == 0
	}
	return slices.Clip(out), nil
}
