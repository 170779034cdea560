package recording

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"math"
	"sync"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// blockSize is at how many bytes a block of hits is written.
const blockSize = 64 << 10

// maxCounts bounds the events of an End, so that it is no more than a block.
const maxCounts = 2000

// Writer writes a recording. Its methods may be called from several goroutines.
// After the first failure every call returns that failure.
type Writer struct {
	mu    sync.Mutex
	out   outlet
	block []byte // guarded by mu: a block of hits in the making, with room for its head
	hits  uint64 // guarded by mu
	fresh uint64 // guarded by mu: of hits those that are in block
	raw   rawBlock

	round uint32      // guarded by mu: how often definitions were forgotten, and 1
	count [128]uint32 // guarded by mu: definitions of each letter
	most  uint32      // guarded by mu: of them the largest
	size  int         // guarded by mu: bytes of definitions
	time  uint64      // guarded by mu: of the last hit
}

// NewWriter begins a recording.
func NewWriter(w io.Writer, h *Header) (*Writer, error) {
	o := &Writer{out: outlet{w: w}, round: 1}
	o.block = o.out.room()
	head := binary.LittleEndian.AppendUint32([]byte(Magic), Version)
	if err := o.out.put(0, head, 0); err != nil {
		return nil, err
	}
	return o, o.json(blockHeader, h)
}

// Size is how many bytes of whole blocks the file has.
func (o *Writer) Size() int64 {
	n, _ := o.out.written()
	return n
}

// Hits is how many hits were given.
func (o *Writer) Hits() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hits
}

// putSum puts the checksum into a block's head.
func putSum(b []byte) {
	sum := crc32.Update(crc32.Checksum(b[:8], castagnoli), castagnoli, b[blockHead:])
	binary.LittleEndian.PutUint32(b[8:], sum)
}

func (o *Writer) json(typ byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return o.out.put(typ, append(o.out.room(), text...), 0)
}

// flush writes the hits and records that wait. mu is held.
func (o *Writer) flush() error {
	if err := o.sealRaw(); err != nil {
		return err
	}
	return o.flushHits()
}

// flushHits writes the hits that wait. mu is held.
func (o *Writer) flushHits() error {
	if len(o.block) == blockHead {
		return o.out.failed()
	}
	b, n := o.block, o.fresh
	o.block, o.fresh = o.out.room(), 0
	return o.out.put(blockData, b, n)
}

// Flush writes what waits: what is in the file then, a crash leaves there.
func (o *Writer) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.flush()
}

// Modules records what a process has mapped.
func (o *Writer) Modules(m *Modules) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.flush(); err != nil {
		return err
	}
	return o.json(blockModules, m)
}

// Close ends the recording.
func (o *Writer) Close(e *End) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.flush(); err != nil {
		return err
	}
	if e.Hits = o.hits; len(e.Events) > maxCounts {
		e.Events = e.Events[:maxCounts]
	}
	if err := o.json(blockEnd, e); err != nil {
		return err
	}
	o.out.end()
	return o.out.failed()
}

// Hit records a hit.
func (o *Writer) Hit(h *Hit) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.out.failed(); err != nil {
		return err
	}
	if err := o.sealRaw(); err != nil {
		return err
	}
	if o.size > maxMemory/2 || o.most >= maxDefs-maxFrames-8 {
		o.block = append(o.block, 'r')
		o.round++
		clear(o.count[:])
		o.size, o.most = 0, 0
	}
	o.event(h.Event)
	o.thread(h.Thread)
	o.place(h.Place)
	if h.Event.Return {
		o.place(h.Caller)
	}
	if h.Stack != nil {
		o.stack(h.Stack)
	}
	b := append(o.block, 'h')
	b = number(b, uint64(h.Event.id), uint64(h.Thread.id), uint64(h.CPU), zigzag(int64(h.Time-o.time)), uint64(h.Place.id))
	o.time = h.Time
	if h.Event.Return {
		b = number(b, uint64(h.Caller.id))
	} else if h.Event.Entry {
		b = number(b, h.SP)
	}
	if h.Event.Go {
		b = number(b, h.G)
	}
	if h.Entry != 0 && h.Entry <= h.Time {
		b = number(b, h.Time-h.Entry+1)
	} else {
		b = number(b, 0)
	}
	if h.Stack != nil {
		b = number(b, uint64(h.Stack.id)+1)
	} else {
		b = number(b, 0)
	}
	for i := range h.Event.Fields {
		b = appendValue(b, h.Event.Fields[i].Kind, &h.Values[i])
	}
	o.block = b
	o.hits++
	o.fresh++
	if len(o.block) < blockSize {
		return nil
	}
	return o.flush()
}

// has reports whether a definition has its number in this file.
func (o *Writer) has(d *def) bool { return d.by == o && d.of == o.round }

// define gives a definition its number; fresh says that it has to be written.
func (o *Writer) define(d *def, letter byte) (fresh bool) {
	if o.has(d) {
		return false
	}
	d.by, d.of, d.id = o, o.round, o.count[letter]
	o.count[letter]++
	o.most = max(o.most, o.count[letter])
	return true
}

func (o *Writer) wrote(from int) { o.size += len(o.block) - from + 64 }

func (o *Writer) place(p *Place) {
	if !o.define(&p.def, 'p') {
		return
	}
	from := len(o.block)
	o.block = appendPlace(o.block, p)
	o.wrote(from)
}

func appendPlace(b []byte, p *Place) []byte {
	return number(text(text(append(b, 'p'), p.Name), p.Module), p.Addr, p.Off, p.Size)
}

func (o *Writer) thread(t *Thread) {
	if !o.define(&t.def, 't') {
		return
	}
	from := len(o.block)
	o.block = appendThread(o.block, t)
	o.wrote(from)
}

func appendThread(b []byte, t *Thread) []byte {
	return text(number(append(b, 't'), uint64(t.PID), uint64(t.TID)), t.Comm)
}

func (o *Writer) event(e *Event) {
	if !o.define(&e.def, 'e') {
		return
	}
	from := len(o.block)
	flags := uint64(0)
	if e.Return {
		flags |= 1
	}
	if e.Entry {
		flags |= 2
	}
	if e.Go {
		flags |= 4
	}
	if e.Static {
		flags |= 8
	}
	b := number(text(text(append(o.block, 'e'), e.Group), e.Name), flags, uint64(len(e.Fields)))
	for _, f := range e.Fields {
		b = number(text(text(b, f.Name), f.Type), uint64(f.Kind))
	}
	o.block = b
	o.wrote(from)
}

func (o *Writer) stack(s *Stack) {
	if o.has(&s.def) {
		return
	}
	for _, p := range s.Frames {
		o.place(p)
	}
	o.define(&s.def, 's')
	from := len(o.block)
	b := number(text(append(o.block, 's'), s.End), uint64(len(s.Frames)))
	for _, p := range s.Frames {
		b = number(b, uint64(p.id))
	}
	o.block = b
	o.wrote(from)
}

func number(b []byte, list ...uint64) []byte {
	for _, v := range list {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func text(b []byte, s string) []byte {
	s = s[:min(len(s), maxText)]
	return append(number(b, uint64(len(s))), s...)
}

func zigzag(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }

func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

func appendValue(b []byte, kind Kind, v *Value) []byte {
	b = append(b, byte(v.State))
	if v.State == Fault {
		return b
	}
	if v.State == Printed {
		kind = Shown
	}
	switch kind {
	case Unsigned, Hex:
		return number(b, v.Int)
	case Signed:
		return number(b, zigzag(int64(v.Int)))
	case Float:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v.Float))
	}
	t := v.Text[:min(len(v.Text), maxText)]
	return append(number(b, uint64(len(t))), t...)
}
