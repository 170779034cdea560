package flight

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/probe/book"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

const (
	rate = 1 << 31 // ns a tick in 1/2^32: half a nanosecond
	tsc0 = 1 << 40
	ns0  = 5_000_000
)

// numberLayout is how records of one number look.
func numberLayout(t testing.TB) book.Layout {
	t.Helper()
	b, err := (&fetch.Program{Fixed: 8, Args: []fetch.ArgProgram{{Type: fetch.Type{Size: 8}, Size: 8, FaultBit: -1}}}).Portable()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// recorder is the memory file of probes that were left alone.
type recorder struct {
	l    *ring.Layout
	b    []byte
	head uint64
}

// newRecorder makes one, with this book.
func newRecorder(t testing.TB, k *book.Book) *recorder {
	t.Helper()
	l, err := ring.New(ring.Params{
		CPUs: 1, MaxProbes: 255, RingSize: ring.MinOverwrite, Fallback: ring.PageSize, Instances: ring.PageSize,
		Code: ring.PageSize, MaxMaps: 1, Sites: 1, Book: 16 << 10, Overwrite: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &recorder{l: l, b: make([]byte, l.Size)}
	h := ring.Header{Base: 1 << 20, Target: uint32(k.PID), Probes: uint32(len(k.Probes)), Time: ring.Sample{TSC: tsc0, NS: ns0}, Rate: rate, Mode: ring.ModeDetached}
	copy(m.b, h.Encode(l))
	text, err := k.Encode()
	if err != nil || int64(len(text)) > l.Book.Size {
		t.Fatal(len(text), err)
	}
	copy(m.b[l.Book.Off:], text)
	for i := range k.Probes {
		p := &k.Probes[i]
		copy(m.b[l.Probe(p.ID):], (&ring.Probe{ID: p.ID, Name: p.Name(), Addr: p.Addr}).Encode())
	}
	first := l.FirstPosition(1 << 33)
	m.head = first
	m.word(ring.TailOff, first)
	m.word(ring.HeadOff, first)
	return m
}

func (m *recorder) word(off int64, v uint64) {
	binary.LittleEndian.PutUint64(m.b[m.l.RingWord(0, off):], v)
}

// put adds a record that is finished.
func (m *recorder) put(id, tid uint32, tsc uint64, data ...uint64) {
	le := binary.LittleEndian
	rec := make([]byte, ring.HeaderSize, ring.HeaderSize+8*len(data))
	for _, v := range data {
		rec = le.AppendUint64(rec, v)
	}
	le.PutUint32(rec, ring.CommitWord(id, len(rec)/ring.Unit))
	le.PutUint32(rec[ring.TIDOff:], tid)
	le.PutUint64(rec[ring.TimeOff:], tsc)
	at := m.b[m.l.RingData(0)+int64(m.head&uint64(m.l.RingSize-1)):]
	le.PutUint64(at, m.head)
	copy(at[ring.StampSize:], rec)
	m.head += ring.StampSize + uint64(len(rec))
	m.word(ring.HeadOff, m.head)
}

// seen is what comes of a recorder, a line a hit.
type seen []string

func (s *seen) Hit(h *results.Hit) error {
	vals, err := h.Program.Decode(h.Data, nil)
	if err != nil || len(vals) != 0 && h.Data == nil {
		return fmt.Errorf("a hit that can't be decoded: %w", err)
	}
	line := fmt.Sprintf("%d %s-%d %s %x", h.Time, h.Comm, h.TID, h.Event.Name, uint64(h.IP))
	for off := 0; off+8 <= len(h.Data); off += 8 {
		line += fmt.Sprintf(" %d", binary.LittleEndian.Uint64(h.Data[off:]))
	}
	if h.Event.Return {
		line += fmt.Sprintf(" <- %s to %x", h.Func, uint64(h.RetIP))
	}
	*s = append(*s, line)
	return nil
}

func sampleBook(t testing.TB) *book.Book {
	return &book.Book{
		PID: 7, Comm: "prog", Layouts: []book.Layout{numberLayout(t)},
		Probes: []book.Probe{
			{ID: 1, Group: "g", Event: "in", Def: "p:g/in f", Addr: 0x100},
			{ID: 2, Group: "g", Event: "out", Def: "r:g/out f", Return: true, Func: "f", Addr: 0x100},
			{ID: 3, Group: "g", Event: "at", Def: "p:g/at f", Times: []int{0}, Addr: 0x200},
		},
	}
}

// TestSnapshot: records become hits by what the book says, in order of time; those that
// it doesn't know are counted.
func TestSnapshot(t *testing.T) {
	m := newRecorder(t, sampleBook(t))
	m.put(1, 7, tsc0+2000, 42)
	m.put(2, 8, tsc0+6000, 43, 0xabc)
	m.put(3, 9, tsc0+4000, tsc0+2)
	m.put(9, 9, tsc0+5000, 1) // no such probe
	m.put(2, 9, tsc0+5000)    // a return that returns nowhere
	m.put(1, 9, tsc0+5000)    // less than its number
	f, err := New(bytes.NewReader(m.b), Options{CPUs: 1, Dead: true, Thread: func(tid uint32) (int, string) {
		if tid == 8 {
			return 80, "eight"
		}
		return int(tid), ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{
		fmt.Sprint(ns0+1000, " prog-7 in 100 42"), fmt.Sprint(ns0+2000, " <...>-9 at 200 ", ns0+1),
		fmt.Sprint(ns0+3000, " eight-80 out 100 43 <- f to abc"),
	}
	var got seen
	if err := (Set{f}).Snapshot(t.Context(), 0, &got); err != nil || fmt.Sprint(got) != fmt.Sprint(all) {
		t.Errorf("%q, %v; want %q", got, err, all)
	}
	if f.Odd != 3 {
		t.Errorf("%d odd records", f.Odd)
	}
	stats, err := f.Count()
	if err != nil || len(stats) != 3 {
		t.Fatalf("%+v, %v", stats, err)
	}
	for i, want := range []uint64{2, 2, 1} {
		if st := &stats[i]; st.Recorded != want || st.Hits != want || st.Places != 1 {
			t.Errorf("%+v, want %d", st, want)
		}
	}
	// The youngest, and those of two files as one.
	a, b := newRecorder(t, sampleBook(t)), newRecorder(t, sampleBook(t))
	var set Set
	for i := range uint64(10) {
		m := a
		if i%3 == 0 {
			m = b
		}
		m.put(1, 7, tsc0+2000*i, i)
	}
	for _, m := range []*recorder{a, b} {
		f, err := New(bytes.NewReader(m.b), Options{CPUs: 1, Dead: true})
		if err != nil {
			t.Fatal(err)
		}
		set = append(set, f)
	}
	got = nil
	if err := set.Snapshot(t.Context(), 3*time.Microsecond, &got); err != nil || len(got) != 4 {
		t.Errorf("%q, %v", got, err)
	}
	for i, line := range got {
		if want := fmt.Sprintf("%d prog-7 in 100 %d", ns0+1000*(6+i), 6+i); line != want {
			t.Errorf("%s, want %s", line, want)
		}
	}
}

// slowly is a memory file with a ring that takes 5 ms to read, and the clock.
type slowly struct {
	*bytes.Reader
	ring, end int64 // its bytes
	ns        int64
}

func (s *slowly) ReadAt(b []byte, off int64) (int, error) {
	if off >= s.ring && off < s.end {
		s.ns += 5_000_000
	}
	return s.Reader.ReadAt(b, off)
}

func (s *slowly) TSC() uint64 { return tsc0 + 2*uint64(s.ns-ns0) }
func (s *slowly) Mono() int64 { return s.ns }

// TestYoungAtTheStart: of a process that runs, what is young counts from when the rings begin to be read, however long that takes.
func TestYoungAtTheStart(t *testing.T) {
	m := newRecorder(t, sampleBook(t))
	for i := range uint64(10) {
		m.put(1, 7, tsc0+2000*i, i)
	}
	slow := &slowly{bytes.NewReader(m.b), m.l.RingData(0), m.l.RingData(0) + int64(m.l.RingSize), ns0 + 10_000}
	f, err := New(slow, Options{CPUs: 1, Clock: slow})
	if err != nil {
		t.Fatal(err)
	}
	var got seen
	if err := (Set{f}).Live(t.Context(), 4*time.Microsecond, &got); err != nil || len(got) != 4 {
		t.Errorf("%q, %v; want the last four", got, err)
	}
	if slow.ns == ns0+10_000 {
		t.Error("no ring was read")
	}
}

// TestTimesOfTwo: two files whose moments and rates differ a little, as they do when two commands have left probes, give
// times that never go back, by the clock of the file that was made first.
func TestTimesOfTwo(t *testing.T) {
	a, b := newRecorder(t, sampleBook(t)), newRecorder(t, sampleBook(t))
	h, l, err := ring.ReadHeader(bytes.NewReader(b.b), 0)
	if err != nil {
		t.Fatal(err)
	}
	h.Time, h.Rate = ring.Sample{TSC: tsc0 + 2_000_000, NS: ns0 + 1_000_000 + 700}, h.Rate+h.Rate/10_000
	copy(b.b, h.Encode(l))
	for i := range uint64(10) {
		[]*recorder{a, b}[i%2].put(1, 7, tsc0+400*i, i)
	}
	for _, files := range [][]*recorder{{a, b}, {b, a}} {
		var set Set
		for _, m := range files {
			f, err := New(bytes.NewReader(m.b), Options{CPUs: 1, Dead: true})
			if err != nil {
				t.Fatal(err)
			}
			set = append(set, f)
		}
		var got seen
		if err := set.Snapshot(t.Context(), 0, &got); err != nil || len(got) != 10 {
			t.Fatalf("%q, %v", got, err)
		}
		for i, line := range got {
			if want := fmt.Sprintf("%d prog-7 in 100 %d", ns0+200*i, i); line != want {
				t.Errorf("%s, want %s", line, want)
			}
		}
	}
}

// TestForgedFiles: what no recorder is, or whose parts don't fit each other, is an error
// or has fewer hits.
func TestForgedFiles(t *testing.T) {
	good := newRecorder(t, sampleBook(t))
	good.put(1, 7, tsc0, 42)
	l := good.l
	changed := func(at int64, v uint64) []byte {
		b := bytes.Clone(good.b)
		binary.LittleEndian.PutUint64(b[at:], v)
		return b
	}
	traced := bytes.Clone(good.b)
	binary.LittleEndian.PutUint32(traced[ring.ModeOff:], ring.ModeOverwrite)
	for _, tt := range []struct {
		name string
		b    []byte
		want error // nil: any
	}{
		{"nothing", nil, nil},
		{"cut off", good.b[:ring.PageSize-1], nil},
		{"a session's", traced, ErrNoRecorder},
		{"no book", changed(l.Book.Off+8, 0), book.ErrNone},
		{"a book of 4 GB", changed(l.Book.Off, 1<<32-1), book.ErrCorrupt},
		{"a book longer than its room", changed(l.Book.Off, uint64(l.Book.Size)), book.ErrCorrupt},
		{"another book", changed(l.Book.Off+40, 0), book.ErrCorrupt},
		{"cut off in the book", good.b[:l.Book.Off+20], io.EOF},
	} {
		if f, err := New(bytes.NewReader(tt.b), Options{CPUs: 1, Dead: true}); err == nil || f != nil && tt.want != nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	// Probes that were taken out have left their hits, those that were never left none.
	if _, err := New(bytes.NewReader(traced), Options{CPUs: 1, Removed: true}); err != nil {
		t.Errorf("removed: %v", err)
	}
	binary.LittleEndian.PutUint64(traced[l.Book.Off+8:], 0)
	if _, err := New(bytes.NewReader(traced), Options{CPUs: 1, Removed: true}); !errors.Is(err, ErrNoRecorder) {
		t.Errorf("never left: %v", err)
	}
	noClock := changed(112, 0)
	f, err := New(bytes.NewReader(noClock), Options{CPUs: 1, Dead: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := (Set{f}).Snapshot(t.Context(), 0, &seen{}); !errors.Is(err, book.ErrCorrupt) {
		t.Errorf("without a clock: %v", err)
	}
}

// TestForgedBooks: offsets and layouts that lie outside of records, the largest that
// there are, too.
func TestForgedBooks(t *testing.T) {
	for _, off := range []int{-1, 1, 8, math.MaxInt, math.MaxInt - 7, math.MinInt} {
		k := sampleBook(t)
		k.Probes[2].Times = []int{off, 0}
		m := newRecorder(t, k)
		m.put(3, 7, tsc0, tsc0+4)
		f, err := New(bytes.NewReader(m.b), Options{CPUs: 1, Dead: true})
		if err != nil {
			t.Fatal(err)
		}
		var got seen
		if err := (Set{f}).Snapshot(t.Context(), 0, &got); err != nil || len(got) != 1 {
			t.Errorf("a time stamp at %d: %q, %v", off, got, err)
		}
	}
	for _, layout := range []string{
		`{"fixed":152,"fields":[],"args":[],"stack":{"Slot":9223372036854775807,"Bytes":0}}`,
		`{"fixed":152,"fields":[],"args":[],"stack":{"Slot":0,"Bytes":9223372036854775800}}`,
		`{"fixed":8,"fields":[],"args":[{"slot":9223372036854775800,"size":8,"type":{"Size":8}}]}`,
	} {
		k := sampleBook(t)
		k.Layouts = []book.Layout{book.Layout(layout)}
		m := newRecorder(t, k)
		m.put(1, 7, tsc0, make([]uint64, 40)...)
		if f, err := New(bytes.NewReader(m.b), Options{CPUs: 1, Dead: true}); !errors.Is(err, book.ErrCorrupt) {
			t.Errorf("%s: %v, %v", layout, f, err)
		}
	}
}

// TestForgedRings: rings whose positions and records point anywhere end.
func TestForgedRings(t *testing.T) {
	for _, head := range []uint64{0, 1, 7, 8, 1 << 63, math.MaxUint64, math.MaxUint64 - 7} {
		for _, tail := range []uint64{0, 8, 1 << 63, math.MaxUint64 - 7} {
			m := newRecorder(t, sampleBook(t))
			for i := range uint64(1000) {
				m.put(1, 7, tsc0+i, i)
			}
			m.word(ring.HeadOff, head)
			m.word(ring.TailOff, tail)
			f, err := New(bytes.NewReader(m.b), Options{CPUs: 1, Dead: true})
			if err != nil {
				t.Fatal(err)
			}
			var got seen
			if err := (Set{f}).Snapshot(t.Context(), 0, &got); err != nil || len(got) > 1000 {
				t.Errorf("from %#x to %#x: %d hits, %v", tail, head, len(got), err)
			}
		}
	}
}

// FuzzRecorder has a file's book, ring and first page say anything: reading ends, with an
// error or with hits that can be decoded.
func FuzzRecorder(f *testing.F) {
	k, err := sampleBook(f).Encode()
	if err != nil {
		f.Fatal(err)
	}
	text := k[book.HeadSize:]
	m := newRecorder(f, sampleBook(f))
	m.put(1, 7, tsc0+2000, 42)
	m.put(2, 8, tsc0+6000, 43, 0xabc)
	m.put(3, 9, tsc0+4000, tsc0+2)
	from := m.l.RingData(0) + int64(m.l.FirstPosition(1<<33)&uint64(m.l.RingSize-1))
	records := m.b[from:][:200]
	f.Add([]byte(text), bytes.Clone(records), uint16(0), byte(0))
	f.Add([]byte(`{"layouts":[{"fixed":152,"fields":[],"args":[],"stack":{"Slot":0,"Bytes":0,"Frames":99}}],"probes":[{"id":1}]}`), bytes.Clone(records), uint16(120), byte(9))
	f.Fuzz(func(t *testing.T, text, records []byte, at uint16, v byte) {
		if len(text) > 8<<10 || len(records) > 64<<10 {
			return
		}
		m := newRecorder(t, sampleBook(t))
		copy(m.b[m.l.Book.Off:], headed(text))
		copy(m.b[from:], records)
		m.word(ring.HeadOff, m.head+uint64(len(records))&^7)
		m.b[at%ring.PageSize] ^= v
		r, err := New(bytes.NewReader(m.b), Options{CPUs: 1, Dead: true})
		if err != nil {
			return
		}
		space, _ := new(symbols.Cache).OpenRecorded(nil, nil)
		r.Name(space)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var got seen
		if err := (Set{r}).Snapshot(ctx, 0, &got); err != nil && !errors.Is(err, book.ErrCorrupt) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
		_, _ = r.Count()
	})
}

// headed puts a true head before a book's text.
func headed(text []byte) []byte {
	b, err := (&book.Book{}).Encode()
	if err != nil {
		panic(err)
	}
	b = append(b[:book.HeadSize:book.HeadSize], text...)
	binary.LittleEndian.PutUint32(b, uint32(len(text)))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
	return b
}
