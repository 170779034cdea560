package recording

import (
	"encoding/binary"
	"encoding/json"

	"github.com/klauspost/compress/zstd"

	"kprobe/fetch"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// mostKnown bounds the bytes of what is known of records, about.
const mostKnown = 256 << 20

// rawReader is what a Reader knows of records.
type rawReader struct {
	split     func(b []byte) (ring.Raw, []byte, bool) // takes the first record off
	processes []*process
	defs      []*rawProbe
	owners    []*Thread
	buf       []byte // the records that wait
	other     []byte
	queue     []entry // they, in order of time, from head on
	head      int
	spare     []entry
	begin     []int // where in queue what is in order begins
	lanes     []*lane
	until     uint64

	first ring.Sample
	cal   *ring.Calibration
	next  int64  // when the clocks are compared again
	line  uint64 // from which time stamp on the last comparison counts

	memory int // bytes of what is known, about
	conv   Converter
	vals   []fetch.Value
	events map[string]*Event
	pack   *zstd.Decoder
}

// process is one whose records are in the file.
type process struct {
	pid     int
	probes  []uint32 // by number: 1 and the index of defs
	threads map[uint32]uint32
	places  map[uint64]*Place
	recent  [1 << recentBits]*Place
	layouts []*fetch.Program
	lanes   map[uint16]*lane // by CPU
}

// lane are the records of a process's rings of one CPU, of a block.
type lane struct {
	q     []entry
	begin []int // where in q what is in order begins, but for the first
}

// rawProbe is a probe as its records need it.
type rawProbe struct {
	of      *process
	program *program
	place   *Place
	times   []int
}

// entry is a record that waits.
type entry struct {
	tsc    uint64
	at     uint32 // of its data in buf
	n      uint16
	cpu    uint16
	def    uint32
	thread uint32
}

// isRaw reports whether blocks of a type are about records.
func isRaw(typ byte) bool {
	switch typ {
	case blockProcess, blockProbes, blockNames, blockRecords, blockPacked:
		return true
	}
	return false
}

// raw takes a block that is about records. errRecord, alone, says that it can't be what was
// written.
func (o *Reader) raw(typ byte) error {
	ok := false
	switch typ {
	case blockProcess:
		ok = o.process()
	case blockProbes:
		ok = o.probes()
	case blockNames:
		ok = o.names()
	case blockRecords:
		ok = o.records(o.block)
	case blockPacked:
		b, err := o.unpack()
		ok = err == nil && o.records(b)
	}
	if !ok || o.rec.memory > mostKnown {
		return errRecord
	}
	return nil
}

func (o *Reader) unpack() ([]byte, error) {
	if len(o.block) < 4 || binary.LittleEndian.Uint32(o.block) > MaxBlock {
		return nil, errRecord
	}
	if o.rec.pack == nil {
		var err error
		if o.rec.pack, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*MaxBlock), zstd.WithDecoderMaxWindow(2*MaxBlock)); err != nil {
			return nil, err
		}
	}
	b, err := o.rec.pack.DecodeAll(o.block[4:], o.unpacked[:0])
	if err == nil && len(b) != int(binary.LittleEndian.Uint32(o.block)) {
		err = errRecord
	}
	o.unpacked = b
	return b, err
}

func (o *Reader) process() bool {
	var b processBlock
	r := &o.rec
	if json.Unmarshal(o.block, &b) != nil || int(b.ID) != len(r.processes) || len(r.processes) >= maxDefs {
		return false
	}
	if len(r.processes) == 0 {
		r.first = ring.Sample{TSC: b.TSC, NS: b.Mono}
	}
	r.memory += 512 + 8<<recentBits
	r.processes = append(r.processes, &process{pid: b.PID, threads: map[uint32]uint32{}, places: map[uint64]*Place{}, lanes: map[uint16]*lane{}})
	return true
}

func (o *Reader) probes() bool {
	var b probesBlock
	r := &o.rec
	r.memory += len(o.block)
	if json.Unmarshal(o.block, &b) != nil || int64(b.Process) >= int64(len(r.processes)) {
		return false
	}
	p := r.processes[b.Process]
	for _, text := range b.Layouts {
		l, err := fetch.FromPortable(text)
		if err != nil || len(l.Fields()) > maxFields {
			return false
		}
		p.layouts = append(p.layouts, l)
	}
	for i := range b.Probes {
		row := &b.Probes[i]
		if row.Layout < 0 || row.Layout >= len(p.layouts) || row.ID == 0 || row.ID > ring.MaxID || len(r.defs) >= maxDefs*4 {
			return false
		}
		for int(row.ID) >= len(p.probes) {
			p.probes = append(p.probes, 0)
			r.memory += 4
		}
		r.defs = append(r.defs, o.probeOf(p, row))
		p.probes[row.ID] = uint32(len(r.defs))
	}
	return true
}

func (o *Reader) probeOf(p *process, row *probeRow) *rawProbe {
	e := &Event{Group: row.Group, Name: row.Event, Return: row.Return, Entry: row.Entry, Go: row.Go, Static: row.Static}
	d := &rawProbe{of: p, program: programOf(e, p.layouts[row.Layout]), times: row.Times}
	d.program.event = o.sameEvent(e)
	d.place = p.places[row.Addr]
	if d.place == nil || d.place.Name != row.Name || d.place.Off != row.Off {
		d.place = &Place{Name: row.Name, Module: row.Module, Addr: row.Addr, Off: row.Off, Size: row.Size}
		p.name(d.place)
	}
	o.rec.memory += 256
	return d
}

// sameEvent gives the event of another place that is the same.
func (o *Reader) sameEvent(e *Event) *Event {
	key, err := json.Marshal(e)
	if err != nil {
		return e
	}
	if was := o.rec.events[string(key)]; was != nil {
		return was
	}
	if o.rec.events == nil {
		o.rec.events = map[string]*Event{}
	}
	o.rec.events[string(key)] = e
	return e
}

func (p *process) name(at *Place) {
	p.places[at.Addr] = at
	p.recent[recentAt(at.Addr)] = at
}

// recentAt is where an address has its place among the recent ones.
func recentAt(a uint64) uint64 { return a * 0x9e3779b97f4a7c15 >> (64 - recentBits) }

// place gives the place of an address in a record.
func (p *process) place(a uint64) *Place {
	at := &p.recent[recentAt(a)]
	if *at != nil && (*at).Addr == a {
		return *at
	}
	if x := p.places[a]; x != nil {
		*at = x
		return x
	}
	return &Place{Addr: a}
}

func (o *Reader) names() bool {
	r := &o.rec
	d := decoder{b: o.block}
	n := d.number()
	if d.bad || n >= uint64(len(r.processes)) {
		return false
	}
	p := r.processes[n]
	for len(d.b) > 0 && !d.bad {
		letter := d.b[0]
		d.b = d.b[1:]
		switch letter {
		case 'p':
			x := d.place()
			if was := p.places[x.Addr]; was != nil {
				r.memory -= was.room()
			}
			r.memory += x.room()
			p.name(x)
		case 't':
			t := &Thread{PID: d.int(), TID: d.int()}
			t.Comm = d.text()
			tid := d.number()
			if tid > 1<<32-1 {
				return false
			}
			r.own(p, uint32(tid), t)
		default:
			return false
		}
	}
	return !d.bad
}

// room is about how many bytes a place takes.
func (p *Place) room() int { return 128 + len(p.Name) + len(p.Module) }

// own notes whose records have a thread's number from now on.
func (r *rawReader) own(p *process, tid uint32, t *Thread) uint32 {
	n := uint32(len(r.owners))
	p.threads[tid] = n
	r.owners = append(r.owners, t)
	r.memory += 128 + len(t.Comm)
	return n
}

// hit makes a hit of the next record. It is false where the record isn't what the probe's
// layout says.
func (r *rawReader) hit(h *Hit) (ok bool) {
	defer func() {
		if recover() != nil { // a layout may say anything
			ok = false
		}
	}()
	e := &r.queue[r.head]
	r.head++
	d := r.defs[e.def]
	data := r.buf[e.at : int(e.at)+int(e.n)]
	p := d.program
	*h = Hit{
		Event: p.event, Thread: r.owners[e.thread], CPU: int(e.cpu), Time: uint64(r.cal.NS(e.tsc)),
		Place: d.place, Values: h.Values[:0],
	}
	if p.event.Return {
		if len(data) < 8 {
			return false
		}
		h.Caller = d.of.place(binary.LittleEndian.Uint64(data[len(data)-8:]))
		data = data[:len(data)-8]
	}
	for _, off := range d.times { // in place: nobody reads the record again
		if off < 0 || off > len(data)-8 {
			continue
		}
		b := data[off:]
		binary.LittleEndian.PutUint64(b, uint64(r.cal.NS(binary.LittleEndian.Uint64(b))))
	}
	vals, err := p.of.Decode(data, r.vals[:0])
	if err != nil {
		return false
	}
	r.vals = vals
	r.conv.fill(h, p, vals, d.of)
	return true
}

// SymbolAt implements fetch.Symbolizer.
func (p *process) SymbolAt(a symbols.Addr) (name string, off, size uint64, ok bool) {
	x := p.place(uint64(a))
	return x.Name, x.Off, x.Size, x.Name != ""
}
