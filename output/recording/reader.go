package recording

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"kprobe/probe/ring"
)

// ErrNotRecording is what a file is that has no recording's beginning.
var ErrNotRecording = errors.New("not a recording of kprobe")

// VersionError is a file of a version that this kprobe doesn't know.
type VersionError struct{ Version uint32 }

// Error implements error.
func (e *VersionError) Error() string {
	return fmt.Sprintf("a recording of version %d; this kprobe reads versions up to %d: use the kprobe that wrote it, or a later one", e.Version, Version)
}

// DamagedError says that a file is good up to an offset, and not from there on.
type DamagedError struct {
	Offset int64
	Hits   uint64 // that were read before
	Why    string
}

// Error implements error.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("the recording ends after %d hits, at byte %d: %s", e.Hits, e.Offset, e.Why)
}

// Reader reads a recording, however it came to be: what the file says is believed
// only where it can be, and memory and work are bounded by the file's size. It is
// not safe for concurrent use.
type Reader struct {
	Header  Header
	Modules []Modules // those that were read until now
	End     *End      // nil: not read yet
	// Progress, if set, is told after each block how many bytes of the file were read.
	Progress func(at int64)

	r     *bufio.Reader
	at    int64 // where the next block begins
	block []byte
	left  []byte // of the block
	hits  uint64
	err   error
	rec   rawReader
	after error // what follows the records that wait

	unpacked []byte

	places  []*Place
	threads []*Thread
	events  []*Event
	stacks  []*Stack
	memory  int
	time    uint64
	hit     Hit
}

// maxModules bounds the lists of modules that are kept.
const maxModules = 1 << 12

// NewReader reads the beginning of a recording.
func NewReader(r io.Reader) (*Reader, error) {
	o := &Reader{r: bufio.NewReaderSize(r, 1<<16)}
	var head [len(Magic) + 4]byte
	if _, err := io.ReadFull(o.r, head[:]); err != nil && !isEnd(err) {
		return nil, err
	} else if err != nil || string(head[:len(Magic)]) != Magic {
		return nil, ErrNotRecording
	}
	v := binary.LittleEndian.Uint32(head[len(Magic):])
	if v < oldest || v > Version {
		return nil, &VersionError{v}
	}
	if o.rec.split = ring.Next; v <= short {
		o.rec.split = ring.NextShort
	}
	o.at = int64(len(head))
	typ, err := o.next()
	switch {
	case err == io.EOF:
		return nil, o.damaged("there is no header")
	case err != nil:
		return nil, err
	case typ != blockHeader:
		return nil, o.damaged("it doesn't begin with a header")
	}
	if err := json.Unmarshal(o.block, &o.Header); err != nil {
		return nil, o.damaged("its header can't be read")
	}
	return o, nil
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func (o *Reader) damaged(why string) error {
	return &DamagedError{Offset: o.at, Hits: o.hits, Why: why}
}

// next reads a block. io.EOF says that there is none.
func (o *Reader) next() (typ byte, err error) {
	var head [blockHead]byte
	if n, err := io.ReadFull(o.r, head[:]); n == 0 && isEnd(err) {
		return 0, io.EOF
	} else if isEnd(err) {
		return 0, o.damaged("it was cut off in a block's head")
	} else if err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint32(head[4:])
	if n > MaxBlock || head[1]|head[2]|head[3] != 0 {
		return 0, o.damaged("what follows is not a block")
	}
	if cap(o.block) < int(n) {
		o.block = make([]byte, n)
	}
	o.block = o.block[:n]
	if _, err := io.ReadFull(o.r, o.block); isEnd(err) {
		return 0, o.damaged("it was cut off in a block")
	} else if err != nil {
		return 0, err
	}
	if crc32.Update(crc32.Checksum(head[:8], castagnoli), castagnoli, o.block) != binary.LittleEndian.Uint32(head[8:]) {
		return 0, o.damaged("a block is damaged")
	}
	o.at += int64(blockHead) + int64(n)
	if o.Progress != nil {
		o.Progress(o.at)
	}
	return head[0], nil
}

// Next gives the next hit. io.EOF says that the recording has ended as it should;
// a *DamagedError that it is cut off, or damaged, behind the hits that were given.
func (o *Reader) Next() (*Hit, error) {
	for o.err == nil {
		if o.rec.ready() {
			if !o.rec.hit(&o.hit) {
				o.err = o.damaged(errRecord.Error())
				break
			}
			o.hits++
			return &o.hit, nil
		}
		if o.after != nil {
			o.err = o.ended()
			break
		}
		if len(o.left) > 0 {
			h, err := o.record()
			if err != nil {
				o.err = err
				break
			}
			if h {
				o.hits++
				return &o.hit, nil
			}
			continue
		}
		if err := o.more(); err != nil {
			o.after = err
			o.rec.drain()
		}
	}
	return nil, o.err
}

// ended is the error at the end, which comes behind all hits.
func (o *Reader) ended() error {
	if d, ok := o.after.(*DamagedError); ok {
		d.Hits = o.hits
	}
	return o.after
}

// more goes to the next block of records.
func (o *Reader) more() error {
	typ, err := o.next()
	if err == io.EOF {
		return o.damaged("its end is missing: it was cut off, or is still being written")
	}
	if err != nil {
		return err
	}
	if isRaw(typ) {
		if o.raw(typ) != nil {
			return o.damaged(errRecord.Error())
		}
		return nil
	}
	switch typ {
	case blockData:
		o.left = o.block
		o.rec.drain()
	case blockModules:
		var m Modules
		if err := json.Unmarshal(o.block, &m); err != nil {
			return o.damaged("a list of modules can't be read")
		}
		if len(o.Modules) < maxModules {
			o.Modules = append(o.Modules, m)
		}
	case blockEnd:
		o.End = &End{}
		if err := json.Unmarshal(o.block, o.End); err != nil {
			o.End = nil
			return o.damaged("its end can't be read")
		}
		return io.EOF
	} // others are of later kprobes, and can be left out
	return nil
}

var errRecord = errors.New("a record is damaged")

// record reads one record; hit says whether it is one.
func (o *Reader) record() (hit bool, err error) {
	d := decoder{b: o.left[1:]}
	switch o.left[0] {
	case 'r':
		o.places, o.threads, o.events, o.stacks, o.memory = nil, nil, nil, nil, 0
	case 'p':
		o.places = append(o.places, d.place())
	case 't':
		t := &Thread{PID: d.int(), TID: d.int()}
		t.Comm = d.text()
		o.threads = append(o.threads, t)
	case 'e':
		o.events = append(o.events, d.event())
	case 's':
		s := &Stack{End: d.text()}
		n := d.int()
		if n > maxFrames {
			d.bad = true
		}
		for i := 0; i < n && !d.bad; i++ {
			s.Frames = append(s.Frames, pick(&d, o.places))
		}
		o.stacks = append(o.stacks, s)
	case 'h':
		o.readHit(&d)
		hit = true
	default:
		d.bad = true
	}
	if !hit {
		o.memory += len(o.left) - len(d.b) + 128
	}
	if d.bad || o.memory > maxMemory || max(len(o.places), len(o.threads), len(o.events), len(o.stacks)) > maxDefs {
		return false, o.damaged(errRecord.Error())
	}
	o.left = d.b
	return hit, nil
}

func (o *Reader) readHit(d *decoder) {
	h := &o.hit
	*h = Hit{Event: pick(d, o.events), Thread: pick(d, o.threads), CPU: d.int(), Values: h.Values[:0]}
	h.Time = o.time + uint64(unzigzag(d.number()))
	h.Place = pick(d, o.places)
	if d.bad {
		return
	}
	o.time = h.Time
	if h.Event.Return {
		h.Caller = pick(d, o.places)
	} else if h.Event.Entry {
		h.SP = d.number()
	}
	if h.Event.Go {
		h.G = d.number()
	}
	if n := d.number(); n != 0 {
		h.Entry = h.Time - min(n-1, h.Time)
	}
	if n := d.number(); n != 0 && n-1 < uint64(len(o.stacks)) {
		h.Stack = o.stacks[n-1]
	} else if n != 0 {
		d.bad = true
	}
	for i := range h.Event.Fields {
		h.Values = append(h.Values, d.value(h.Event.Fields[i].Kind))
	}
}

// pick reads the number of a definition.
func pick[T any](d *decoder, list []*T) *T {
	n := d.number()
	if n >= uint64(len(list)) {
		d.bad = true
		return nil
	}
	return list[n]
}

// decoder takes bytes apart; bad says that they aren't what they should be.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || d.bad {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int {
	v := d.number()
	if v > math.MaxInt32 {
		d.bad = true
		return 0
	}
	return int(v)
}

func (d *decoder) bytes() []byte {
	n := d.number()
	if d.bad || n > maxText || n > uint64(len(d.b)) {
		d.bad = true
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) text() string { return string(d.bytes()) }

func (d *decoder) place() *Place {
	p := &Place{Name: d.text(), Module: d.text()}
	p.Addr, p.Off, p.Size = d.number(), d.number(), d.number()
	return p
}

func (d *decoder) event() *Event {
	e := &Event{Group: d.text(), Name: d.text()}
	flags := d.number()
	e.Return, e.Entry, e.Go, e.Static = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0
	n := d.int()
	if n > maxFields {
		d.bad = true
	}
	for i := 0; i < n && !d.bad; i++ {
		f := Field{Name: d.text(), Type: d.text(), Kind: Kind(d.int())}
		d.bad = d.bad || f.Kind > Shown
		e.Fields = append(e.Fields, f)
	}
	return e
}

func (d *decoder) value(kind Kind) Value {
	if d.bad || len(d.b) == 0 || State(d.b[0]) > Printed {
		d.bad = true
		return Value{}
	}
	v := Value{State: State(d.b[0])}
	d.b = d.b[1:]
	switch v.State {
	case Fault:
		return v
	case Printed:
		kind = Shown
	}
	switch kind {
	case Unsigned, Hex:
		v.Int = d.number()
	case Signed:
		v.Int = uint64(unzigzag(d.number()))
	case Float:
		if len(d.b) < 8 {
			d.bad = true
			return v
		}
		v.Float = math.Float64frombits(binary.LittleEndian.Uint64(d.b))
		d.b = d.b[8:]
	default:
		v.Text = d.bytes()
	}
	return v
}
