package recording

import (
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/klauspost/compress/zstd"

	"kprobe/fetch"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Reading records
//
// Records of several rings come in parts that are nearly in order each. What is read is
// brought into one order and waits until a block says that nothing older follows.

// mostPending bounds the bytes of records that wait. A writer leaves what comes within a
// tenth of a second.
const mostPending = 128 << 20

// mostKnown bounds the bytes of what is known of records, about.
const mostKnown = 256 << 20

// rawReader is what a Reader knows of records.
type rawReader struct {
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
	data   []byte
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

// records takes a block of records.
func (o *Reader) records(b []byte) bool {
	r := &o.rec
	if len(b) < rawHead {
		return false
	}
	le := binary.LittleEndian
	now := ring.Sample{TSC: le.Uint64(b), NS: int64(le.Uint64(b[8:]))}
	until := le.Uint64(b[16:])
	if r.head > 0 || len(r.queue) == 0 {
		r.keep()
	}
	for b = b[rawHead:]; len(b) > 0; {
		if len(b) < partHead {
			return false
		}
		n, cpu, size := le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])
		b = b[partHead:]
		if int64(n) >= int64(len(r.processes)) || cpu > 1<<16-1 || int64(size) > int64(len(b)) || size == 0 {
			return false
		}
		if !r.part(r.processes[n], uint16(cpu), b[:size]) {
			return false
		}
		b = b[size:]
	}
	if len(r.buf) > mostPending {
		until = ^uint64(0)
	}
	ok := r.calibrate(now)
	if until > r.until { // else all that is new waits, too
		r.until = until
		r.order()
	}
	return ok
}

// keep makes room for a block behind the records that wait. They are in order.
func (r *rawReader) keep() {
	if slices.ContainsFunc(r.lanes, func(ln *lane) bool { return len(ln.q) > 0 }) {
		return // of blocks before, which nothing was given of
	}
	r.begin = append(r.begin[:0], 0)
	left := r.queue[r.head:]
	if len(left) == 0 {
		// It may have been drained, before more came.
		r.buf, r.queue, r.head, r.until = r.buf[:0], r.queue[:0], 0, 0
		return
	}
	// They are moved to the front, in their order.
	buf, list := r.other[:0], r.spare[:0]
	for _, e := range left {
		at := len(buf)
		buf = append(buf, r.buf[e.at:int(e.at)+int(e.n)]...)
		e.at = uint32(at)
		list = append(list, e)
	}
	r.buf, r.other = buf, r.buf
	r.queue, r.spare, r.head = list, r.queue, 0
}

// part takes records of one ring.
func (r *rawReader) part(p *process, cpu uint16, b []byte) bool {
	ln := p.lanes[cpu]
	if ln == nil {
		ln = &lane{}
		p.lanes[cpu] = ln
		r.lanes = append(r.lanes, ln)
		r.memory += 128
	}
	last, thread, tid := uint64(0), uint32(0), uint64(noThread)
	if n := len(ln.q); n > 0 {
		last = ln.q[n-1].tsc
	}
	for len(b) > 0 {
		x, rest, ok := ring.Next(b)
		if !ok {
			return false
		}
		b = rest
		if x.ID == 0 {
			continue
		}
		if int64(x.ID) >= int64(len(p.probes)) || p.probes[x.ID] == 0 {
			return false
		}
		if uint64(x.TID) != tid {
			var known bool
			if thread, known = p.threads[x.TID]; !known {
				thread = r.own(p, x.TID, &Thread{PID: p.pid, TID: int(x.TID & (1<<31 - 1)), Comm: "<...>"})
			}
			tid = uint64(x.TID)
		}
		if x.TSC < last {
			ln.begin = append(ln.begin, len(ln.q))
		}
		last = x.TSC
		ln.q = append(ln.q, entry{x.TSC, uint32(len(r.buf)), uint16(len(x.Data)), cpu, p.probes[x.ID] - 1, thread})
		r.buf = append(r.buf, x.Data...)
	}
	return true
}

// order brings the records of all lanes into one order.
func (r *rawReader) order() {
	for _, ln := range r.lanes {
		if len(ln.q) == 0 {
			continue
		}
		at := len(r.queue)
		if at > 0 && ln.q[0].tsc < r.queue[at-1].tsc {
			r.begin = append(r.begin, at)
		}
		for _, n := range ln.begin {
			r.begin = append(r.begin, at+n)
		}
		r.queue = append(r.queue, ln.q...)
		ln.q, ln.begin = ln.q[:0], ln.begin[:0]
	}
	for len(r.begin) > 1 {
		r.mergeRuns()
	}
}

// mergeRuns merges what is in order with what follows it, two by two.
func (r *rawReader) mergeRuns() {
	out, all := r.spare[:0], r.begin
	end := func(i int) int {
		if i < len(all) {
			return all[i]
		}
		return len(r.queue)
	}
	n := 0
	for i := 0; i < len(all); i += 2 {
		a, b := r.queue[all[i]:end(i+1)], r.queue[end(i+1):end(i+2)]
		all[n] = len(out)
		n++
		for len(a) > 0 && len(b) > 0 {
			if b[0].tsc < a[0].tsc {
				out, b = append(out, b[0]), b[1:]
			} else {
				out, a = append(out, a[0]), a[1:]
			}
		}
		out = append(append(out, a...), b...)
	}
	r.spare, r.queue, r.begin = r.queue, out, all[:n]
}

// calibrate takes a moment on both clocks into account.
func (r *rawReader) calibrate(now ring.Sample) bool {
	if r.cal == nil {
		var ok bool
		r.cal, ok = ring.Calibrate(r.first, now)
		r.next = now.NS + 10*ring.MinSpan
		r.line = now.TSC
		return ok
	}
	if now.NS < r.next || r.oldest() < r.line {
		return true
	}
	r.cal.Update(now)
	r.line = now.TSC
	r.next = now.NS + min(max(now.NS-r.first.NS, 10*ring.MinSpan), 1e9)
	return true
}

// oldest is the least time stamp of what waits, as far as that is in order.
func (r *rawReader) oldest() uint64 {
	t := ^uint64(0)
	if r.head < len(r.queue) {
		t = r.queue[r.head].tsc
	}
	for _, ln := range r.lanes {
		if len(ln.q) > 0 {
			t = min(t, ln.q[0].tsc)
		}
	}
	return t
}

// ready reports whether there is a record that nothing older follows.
func (r *rawReader) ready() bool { return r.head < len(r.queue) && r.queue[r.head].tsc < r.until }

// drain has all that waits be ready: records of later blocks are later.
func (r *rawReader) drain() {
	r.until = ^uint64(0)
	r.order()
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
	for i, off := range d.times {
		if off < 0 || off+8 > len(data) {
			continue
		}
		if i == 0 {
			r.data = append(r.data[:0], data...)
			data = r.data
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
