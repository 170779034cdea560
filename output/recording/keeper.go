package recording

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// keeper is the results.RecordKeeper of one process.
type keeper struct {
	r     *Recorder
	src   results.RecordSource
	id    uint32 // in the file
	until uint64 // its older records have all come
	begun ring.Sample

	generation uint64
	probes     []keptProbe // by number
	layouts    map[string]int
	// seen are the addresses that have their names in the file, the latest in
	// recent, too; renamed is the Space's count when they got them.
	seen    map[uint64]struct{}
	recent  [1 << recentBits]uint64
	renamed uint64
	threads map[uint32]threadName
	last    uint64 // the thread of the last record; noThread
	told    time.Time

	touched []uint32 // numbers of probes that have records in this Take
	rows    probesBlock
	names   []byte // a block in the making
}

const recentBits = 10

type keptProbe struct {
	of         *results.KeptProbe // nil: none whose records can be kept
	generation uint64             // for which of is what it was; 0 is never
	returns    bool
	n          uint64 // records in this Take
}

type threadName struct {
	number int
	comm   string
}

// threadAge is after what time threads' names are asked for again.
const threadAge = 200 * time.Millisecond

// noThread is the number of no thread.
const noThread = 1 << 32

// processBlock begins the records of a process.
type processBlock struct {
	ID   uint32 `json:"id"`
	PID  int    `json:"pid"`
	TSC  uint64 `json:"tsc"`
	Mono int64  `json:"mono"`
}

// probesBlock says what the numbers in records are.
type probesBlock struct {
	Process uint32            `json:"process"`
	Layouts []json.RawMessage `json:"layouts,omitempty"` // behind those of the process's earlier blocks
	Probes  []probeRow        `json:"probes"`
}

type probeRow struct {
	ID     uint32 `json:"id"`
	Group  string `json:"group"`
	Event  string `json:"event"`
	Return bool   `json:"return,omitempty"`
	Entry  bool   `json:"entry,omitempty"`
	Go     bool   `json:"go,omitempty"`
	Static bool   `json:"static,omitempty"`
	Layout int    `json:"layout"`
	Times  []int  `json:"times,omitempty"`
	Addr   uint64 `json:"addr"`
	Name   string `json:"name,omitempty"`
	Module string `json:"module,omitempty"`
	Off    uint64 `json:"off,omitempty"`
	Size   uint64 `json:"size,omitempty"`
}

// Keep implements results.Keeper. Where the number of hits is bounded they are taken in
// order, one by one.
func (r *Recorder) Keep(src results.RecordSource) results.RecordKeeper {
	if r.Limit != 0 {
		return nil
	}
	k := &keeper{
		r: r, src: src, layouts: map[string]int{}, seen: map[uint64]struct{}{}, threads: map[uint32]threadName{},
		begun: ring.TakeSample(ring.SystemClock{}),
	}
	k.until = k.begun.TSC
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w == nil {
		r.early = append(r.early, k)
		return k
	}
	r.w.register(k)
	return k
}

// register gives a process its number in the file.
func (o *Writer) register(k *keeper) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k.id, o.raw.count = o.raw.count, o.raw.count+1
	k.rows.Process = k.id
	if o.raw.first.NS == 0 {
		o.raw.first = k.begun
	}
	// A failure is told when there are records.
	_ = o.json(blockProcess, processBlock{k.id, k.src.PID(), k.begun.TSC, k.begun.NS})
	o.raw.live = append(o.raw.live, k)
}

// Take implements results.RecordKeeper.
func (k *keeper) Take(cpu int, b []byte) error {
	if err := k.r.begin(); err != nil {
		return err
	}
	if s := k.src.Space(); s != nil && len(k.probes) == 0 {
		if err := k.r.modules(s, false); err != nil {
			return k.r.failed(err)
		}
	}
	w := k.r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	good, err := k.look(b)
	if err == nil {
		err = w.appendRaw(k, cpu, good)
	}
	for _, id := range k.touched {
		p := &k.probes[id]
		kept := err == nil && p.of != nil
		if k.src.Took(id, p.n, kept); kept {
			w.hits += p.n
			w.raw.hits += p.n
		}
		p.n = 0
	}
	k.touched = k.touched[:0]
	if err != nil {
		return k.r.failed(err)
	}
	return nil
}

// look goes through records and has everything in the file that is needed to read them. It
// gives those that can be kept.
func (k *keeper) look(b []byte) (good []byte, err error) {
	if now := time.Now(); now.Sub(k.told) > threadAge {
		k.told, k.last = now, noThread
	}
	if s := k.src.Space(); s != nil && s.Renamed() != k.renamed {
		k.renamed = s.Renamed()
		clear(k.seen)
		clear(k.recent[:])
	}
	k.generation = k.src.Generation() + 1
	good = b
	gap := false
	le := binary.LittleEndian
	for at := 0; at < len(b); {
		if len(b)-at < ring.Unit {
			good = b[:at]
			break
		}
		id, units, whole := ring.SplitState(le.Uint32(b[at:]))
		n := units * ring.Unit
		if !whole || n == 0 || n > len(b)-at || id != 0 && n < ring.HeaderSize {
			good = b[:at] // the program has written there since
			break
		}
		if id == 0 {
			at += n
			continue
		}
		if int(id) >= len(k.probes) || k.probes[id].generation != k.generation {
			if err := k.identify(k.probe(id), id); err != nil {
				return nil, err
			}
		}
		p := &k.probes[id]
		if p.n++; p.n == 1 {
			k.touched = append(k.touched, id)
		}
		switch tid := le.Uint32(b[at+ring.TIDOff:]); {
		case p.of == nil:
			gap = true
		case uint64(tid) != k.last:
			k.last = uint64(tid)
			k.thread(tid)
		}
		if p.returns && n >= ring.HeaderSize+8 {
			k.address(le.Uint64(b[at+n-8:]))
		}
		at += n
	}
	if gap {
		good = k.without(good)
	}
	return good, k.define()
}

func (k *keeper) probe(id uint32) *keptProbe {
	if int(id) >= len(k.probes) {
		k.probes = append(k.probes, make([]keptProbe, int(id)+1-len(k.probes)+len(k.probes)/2)...)
	}
	return &k.probes[id]
}

// without gives records without those of probes whose records can't be kept: such a probe
// has come while they were taken.
func (k *keeper) without(b []byte) (out []byte) {
	for len(b) > 0 {
		r, rest, ok := ring.Next(b)
		if !ok {
			break
		}
		if r.ID == 0 || k.probes[r.ID].of != nil {
			out = append(out, b[:len(b)-len(rest)]...)
		}
		b = rest
	}
	return out
}

// identify finds out what a number stands for, and has that in the file.
func (k *keeper) identify(p *keptProbe, id uint32) error {
	of := k.src.Probe(id)
	same := of == p.of
	p.generation = k.generation
	if same || of == nil {
		p.of = of
		return nil
	}
	if p.of != nil { // the records of before are the other's
		if err := k.r.w.sealRaw(); err != nil {
			return err
		}
	}
	p.of, p.returns = of, of.Event.Return
	space := k.src.Space()
	e := eventOf(of.Event, space, of.Addr)
	row := probeRow{
		ID: id, Group: e.Group, Event: e.Name, Return: e.Return, Entry: e.Entry, Go: e.Go, Static: e.Static,
		Times: of.Times, Addr: uint64(of.Addr), Name: cut(of.Func),
	}
	if place := placeAt(space, of.Addr); place.Name != "" || row.Name == "" {
		row.Name, row.Module, row.Off, row.Size = place.Name, place.Module, place.Off, place.Size
	} else {
		row.Module = place.Module
	}
	text, err := of.Program.Portable()
	if err != nil {
		return err
	}
	n, known := k.layouts[string(text)]
	if !known {
		n = len(k.layouts)
		k.layouts[string(text)] = n
		k.rows.Layouts = append(k.rows.Layouts, text)
	}
	row.Layout = n
	if k.rows.Probes = append(k.rows.Probes, row); len(k.rows.Probes) >= mostRows || len(text) > 1<<12 {
		return k.define()
	}
	return nil
}

// mostRows bounds the probes of a block.
const mostRows = 256

// define writes what was noted for the file.
func (k *keeper) define() error {
	w := k.r.w
	if len(k.rows.Probes) > 0 {
		if err := w.json(blockProbes, &k.rows); err != nil {
			return err
		}
		k.rows.Layouts, k.rows.Probes = nil, nil
	}
	if k.names == nil {
		return nil
	}
	b := k.names
	k.names = nil
	return w.out.put(blockNames, b, 0)
}

// naming begins a block of names, or goes on with one.
func (k *keeper) naming() []byte {
	if k.names == nil {
		k.names = binary.AppendUvarint(k.r.w.out.room(), uint64(k.id))
	}
	return k.names
}

// address has the file name an address.
func (k *keeper) address(a uint64) {
	at := &k.recent[recentAt(a)]
	if *at == a {
		return
	}
	*at = a
	if _, seen := k.seen[a]; seen {
		return
	}
	if len(k.seen) >= maxKept {
		clear(k.seen)
	}
	k.seen[a] = struct{}{}
	k.names = appendPlace(k.naming(), placeAt(k.src.Space(), symbols.Addr(a)))
	if len(k.names) > blockSize {
		// A failure comes back from what is written next.
		_ = k.define()
	}
}

// thread has the file name a thread.
func (k *keeper) thread(tid uint32) {
	number, comm := k.src.Thread(tid)
	now := threadName{number, comm}
	if was, known := k.threads[tid]; known && was == now {
		return
	}
	if len(k.threads) >= maxKept {
		clear(k.threads)
	}
	k.threads[tid] = now
	b := appendThread(k.naming(), &Thread{PID: k.src.PID(), TID: number, Comm: comm})
	k.names = binary.AppendUvarint(b, uint64(tid))
}

// Until implements results.RecordKeeper.
func (k *keeper) Until(tsc uint64) error {
	w := k.r.writer()
	if w == nil { // nobody has had a record yet
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k.until = max(k.until, tsc)
	if len(w.raw.b) < mostRaw {
		return nil
	}
	if err := w.sealRaw(); err != nil {
		return k.r.failed(err)
	}
	return nil
}

// Over implements results.RecordKeeper.
func (k *keeper) Over() {
	is := func(x *keeper) bool { return x == k }
	k.r.mu.Lock()
	k.r.early = slices.DeleteFunc(k.r.early, is)
	w := k.r.w
	k.r.mu.Unlock()
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.raw.live = slices.DeleteFunc(w.raw.live, is)
	}
}
