package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// atEntry is a function's entry. The definitions here ask nothing else.
type atEntry struct{ fetch.Env }

func (atEntry) AtEntry() bool { return true }

// source is a process that records.
type source struct {
	pid        int
	generation uint64
	probes     map[uint32]*results.KeptProbe
	took       map[uint32]uint64
	lost       uint64
}

func (s *source) PID() int                           { return s.pid }
func (s *source) Space() *symbols.Space              { return nil }
func (s *source) Generation() uint64                 { return s.generation }
func (s *source) Probe(id uint32) *results.KeptProbe { return s.probes[id] }

func (s *source) Thread(tid uint32) (int, string) {
	return int(tid) + 1000, fmt.Sprintf("t%d", tid)
}

func (s *source) Took(id uint32, n uint64, kept bool) {
	if !kept {
		s.lost += n
		return
	}
	s.took[id] += n
}

// define gives a number to a definition.
func (s *source) define(t testing.TB, id uint32, def string, addr uint64) *results.KeptProbe {
	t.Helper()
	d, err := fetch.Parse(def)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Compile(atEntry{})
	if err != nil {
		t.Fatal(err)
	}
	s.generation++
	k := &results.KeptProbe{
		Event:   &results.Event{Def: d, Group: d.Group, Name: d.Event, Return: d.Kind == fetch.Return},
		Program: p, Addr: symbols.Addr(addr), Func: "work",
	}
	s.probes[id] = k
	return k
}

// record is a record of a probe.
func record(id, tid uint32, tsc uint64, data []byte) []byte {
	units := ring.Units(len(data))
	b := make([]byte, units*ring.Unit)
	le := binary.LittleEndian
	le.PutUint32(b[ring.StateOff:], ring.CommitWord(id, units))
	le.PutUint32(b[ring.TIDOff:], tid)
	le.PutUint64(b[ring.TimeOff:], tsc)
	copy(b[ring.DataOff:], data)
	return b
}

func words(list ...uint64) (b []byte) {
	for _, v := range list {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func newSource() *source {
	return &source{pid: 41, probes: map[uint32]*results.KeptProbe{}, took: map[uint32]uint64{}}
}

// kept makes a recording of records: script gets the source and who keeps its records.
func kept(t testing.TB, pack bool, script func(r *Recorder, s *source, k results.RecordKeeper, now uint64)) (file []byte) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "x.kprobe")
	r, err := Create(name, &Header{}, pack)
	if err != nil {
		t.Fatal(err)
	}
	s := newSource()
	k := r.Keep(s)
	script(r, s, k, ring.SystemClock{}.TSC())
	k.Over()
	if err := r.Close(nil); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func take(t testing.TB, k results.RecordKeeper, cpu int, records ...[]byte) {
	t.Helper()
	if err := k.Take(cpu, slices.Concat(records...)); err != nil {
		t.Fatal(err)
	}
}

// hits reads a recording; each hit as its event, thread, CPU, values and caller, and the
// times of them.
func hits(file []byte) (list []string, times []uint64, r *Reader, err error) {
	if r, err = NewReader(bytes.NewReader(file)); err != nil {
		return nil, nil, nil, err
	}
	for {
		h, err := r.Next()
		if err != nil {
			return list, times, r, err
		}
		text := fmt.Sprintf("%s %s-%d@%d", h.Event.Name, h.Thread.Comm, h.Thread.TID, h.CPU)
		for i, v := range h.Values {
			text += fmt.Sprintf(" %s=%d%s", h.Event.Fields[i].Name, v.Int, v.Text)
		}
		if h.Caller != nil {
			text += fmt.Sprintf(" <- %#x", h.Caller.Addr)
		}
		list, times = append(list, text), append(times, h.Time)
	}
}

// TestRecords: records of several rings, handed over in parts, come back in order of time,
// with what the probes say of them.
func TestRecords(t *testing.T) {
	for _, pack := range []bool{false, true} {
		file := kept(t, pack, func(r *Recorder, s *source, k results.RecordKeeper, now uint64) {
			s.define(t, 1, "p:in work a=%di:u64", 0x1000)
			s.define(t, 7, "r:out work v=$retval:s32", 0x1000)
			minus := int64(-3)
			take(t, k, 0, record(1, 5, now+10, words(1)), record(7, 5, now+50, words(uint64(minus), 0x2005)))
			take(t, k, 1, record(1, 6, now+20, words(2)), binary.LittleEndian.AppendUint64(nil, uint64(ring.SkipWord(1))), record(1, 6, now+60, words(4)))
			if err := k.Until(now + 55); err != nil {
				t.Fatal(err)
			}
			if err := r.Flush(); err != nil {
				t.Fatal(err)
			}
			take(t, k, 0, record(1, 5, now+58, words(3)))
			if s.took[1] != 4 || s.took[7] != 1 || s.lost != 0 || r.Hits() != 5 {
				t.Errorf("took %v, lost %d, %d hits", s.took, s.lost, r.Hits())
			}
		})
		list, times, r, err := hits(file)
		if err != io.EOF || r.End == nil || r.End.Hits != 5 {
			t.Fatalf("it ends with %v, %+v", err, r.End)
		}
		want := []string{"in t5-1005@0 a=1", "in t6-1006@1 a=2", "out t5-1005@0 v=18446744073709551613 <- 0x2005", "in t5-1005@0 a=3", "in t6-1006@1 a=4"}
		if !slices.Equal(list, want) {
			t.Errorf("compressed %v: got %q", pack, list)
		}
		if !slices.IsSorted(times) || times[4] == times[0] {
			t.Errorf("times %d", times)
		}
	}
}

// TestRecordsHeldBack: what is younger than a block says to be complete waits for the
// blocks behind.
func TestRecordsHeldBack(t *testing.T) {
	const n = 20000
	file := kept(t, false, func(r *Recorder, s *source, k results.RecordKeeper, now uint64) {
		s.define(t, 1, "p:in work a=%di:u64", 0x1000)
		for i := uint64(0); i < n; i += 10 {
			var lanes [2][][]byte
			for j := range uint64(10) {
				lanes[j%2] = append(lanes[j%2], record(1, 5, now+i+j, words(i+j)))
			}
			// One ring is always ten records behind.
			take(t, k, 0, lanes[0]...)
			if err := errors.Join(k.Until(now+i), r.Flush()); err != nil {
				t.Fatal(err)
			}
			take(t, k, 1, lanes[1]...)
		}
	})
	r, err := NewReader(bytes.NewReader(file))
	for i := uint64(0); err == nil; i++ {
		var h *Hit
		if h, err = r.Next(); err == nil && h.Values[0].Int != i {
			t.Fatalf("hit %d is %d", i, h.Values[0].Int)
		}
	}
	if err != io.EOF || r.hits != n {
		t.Errorf("%d hits, %v", r.hits, err)
	}
}

// TestNumberOfAnother: a number that becomes another probe's.
func TestNumberOfAnother(t *testing.T) {
	file := kept(t, false, func(_ *Recorder, s *source, k results.RecordKeeper, now uint64) {
		s.define(t, 1, "p:first work a=%di:u64", 0x1000)
		take(t, k, 0, record(1, 5, now+1, words(1)))
		s.define(t, 1, "p:second work b=%di:u8", 0x2000)
		take(t, k, 0, record(1, 5, now+2, words(2)))
		s.probes[1] = nil // one whose records can't be kept
		s.generation++
		s.define(t, 2, "p:third work", 0x3000)
		take(t, k, 0, record(1, 5, now+3, words(2)), record(2, 5, now+4, nil))
		if s.lost != 1 {
			t.Errorf("%d lost", s.lost)
		}
	})
	list, _, _, err := hits(file)
	if want := []string{"first t5-1005@0 a=1", "second t5-1005@0 b=2", "third t5-1005@0"}; err != io.EOF || !slices.Equal(list, want) {
		t.Errorf("got %q, %v", list, err)
	}
}

// TestRecordsAmongHits: while a process has a probe whose records can't be kept its hits
// come one by one. What comes next is given before all is read.
func TestRecordsAmongHits(t *testing.T) {
	const rounds = 50
	file := kept(t, false, func(r *Recorder, s *source, k results.RecordKeeper, now uint64) {
		p := s.define(t, 1, "p:in work a=%di:u64", 0x1000)
		for i := range uint64(rounds) {
			take(t, k, 0, record(1, 5, now+10*i, words(3*i)), record(1, 5, now+10*i+1, words(3*i+1)))
			if err := errors.Join(k.Until(now+10*i+2), r.Flush()); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				err := r.Hit(&results.Hit{Event: p.Event, Program: p.Program, Data: words(3*i + 2), Time: 1, TID: 1005, Comm: "t5"})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	r, err := NewReader(bytes.NewReader(file))
	last, n := uint64(0), 0
	for ; err == nil; n++ {
		var h *Hit
		if h, err = r.Next(); err != nil {
			break
		}
		if v := h.Values[0].Int; n > 0 && v <= last {
			t.Fatalf("hit %d is %d, behind %d", n, v, last)
		}
		last = h.Values[0].Int
		if waits := len(r.rec.queue) - r.rec.head; waits > 4 {
			t.Fatalf("%d records wait", waits)
		}
	}
	if err != io.EOF || n != 2*rounds+rounds/2 {
		t.Errorf("%d hits, %v", n, err)
	}
}

// TestRecordTimes: time stamps in values are times, on the same clock as the hits.
func TestRecordTimes(t *testing.T) {
	file := kept(t, false, func(_ *Recorder, s *source, k results.RecordKeeper, now uint64) {
		def := "r:out work " + EntryArg
		p := s.define(t, 1, def, 0x1000)
		fields := len(p.Program.Fields())
		slot := p.Program.Args[fields-1].Slot
		p.Times = []int{math.MaxInt, -1, slot} // what lies outside is none
		data := make([]byte, p.Program.Fixed)
		binary.LittleEndian.PutUint64(data[slot:], now)
		take(t, k, 0, record(1, 5, now+1_000_000, append(data, words(0x2005)...)))
	})
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.Next()
	if err != nil || h.Entry == 0 || h.Entry >= h.Time || h.Time-h.Entry > 10_000_000 {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestRecordsCutOff cuts a recording of records at every byte.
func TestRecordsCutOff(t *testing.T) {
	file := someRecords(t, false)
	want, _, _, err := hits(file)
	if err != io.EOF || len(want) != 40 {
		t.Fatalf("%d hits, %v", len(want), err)
	}
	most := 0
	for n := range len(file) {
		got, _, _, err := hits(file[:n])
		var damaged *DamagedError
		if !errors.As(err, &damaged) && !errors.Is(err, ErrNotRecording) {
			t.Fatalf("cut at %d: it ends with %v", n, err)
		}
		if !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("cut at %d: %q", n, got)
		}
		if damaged != nil && len(got) > 0 && damaged.Hits != uint64(len(got)) {
			t.Fatalf("cut at %d: %d hits, the error says %d", n, len(got), damaged.Hits)
		}
		most = max(most, len(got))
	}
	if most != 40 {
		t.Errorf("with all but the end there are %d hits", most)
	}
}

// someRecords is a recording of 40 records in several blocks.
func someRecords(t testing.TB, pack bool) []byte {
	return kept(t, pack, func(r *Recorder, s *source, k results.RecordKeeper, now uint64) {
		s.define(t, 1, "p:in work a=%di:u64", 0x1000)
		s.define(t, 2, "r:out work v=$retval:s32", 0x1000)
		for i := range uint64(20) {
			take(t, k, int(i%2), record(1, 5+uint32(i%3), now+2*i, words(i)), record(2, 5, now+2*i+1, words(i, 0x2000+i)))
			if i%5 == 4 {
				if err := errors.Join(k.Until(now+2*i), r.Flush()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// TestHostileRecords: records that the program has written over end what is taken.
func TestHostileRecords(t *testing.T) {
	kept(t, false, func(r *Recorder, s *source, k results.RecordKeeper, now uint64) {
		s.define(t, 1, "p:in work a=%di:u64", 0x1000)
		bad := record(1, 5, now, words(1))
		bad[3] &^= 0x80
		take(t, k, 0, record(1, 5, now, words(1)), bad, record(1, 5, now, words(1)))
		take(t, k, 0, []byte{1, 2, 3})
		if s.took[1] != 1 || r.Hits() != 1 {
			t.Errorf("took %v", s.took)
		}
	})
}

// TestRecordsFullDisk: a disk that is full ends the recording, which can be read up to there.
func TestRecordsFullDisk(t *testing.T) {
	full0, err := Create("/dev/full", &Header{}, false)
	if err != nil {
		t.Fatal(err)
	}
	var failed *FileError
	if err = full0.Close(nil); !errors.As(err, &failed) {
		t.Fatalf("got %v", err)
	}
	f := &full{room: 200 << 10}
	w, err := NewWriter(f, &Header{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	r := &Recorder{name: file.Name(), w: w, spaces: map[*symbols.Space]int{}}
	w.out.begin()
	s := newSource()
	s.define(t, 1, "p:in work a=%di:u64", 0x1000)
	k := r.Keep(s)
	now := ring.SystemClock{}.TSC()
	n := uint64(0)
	for ; err == nil; n++ {
		err = errors.Join(k.Take(0, record(1, 5, now+n, words(n))), k.Until(now+n), r.Flush())
	}
	if !errors.Is(err, errFull) {
		t.Fatalf("got %v", err)
	}
	w.out.end()
	list, _, _, err := hits(f.Bytes())
	var damaged *DamagedError
	if !errors.As(err, &damaged) || uint64(len(list)) > n || len(list) < 100 {
		t.Errorf("%d of %d hits, %v", len(list), n, err)
	}
}

func BenchmarkTake(b *testing.B) {
	r, err := Create(os.DevNull, &Header{}, false)
	if err != nil {
		b.Fatal(err)
	}
	s := newSource()
	s.define(b, 1, "p:in work a=%di:u64", 0x1000)
	k := r.Keep(s)
	now := ring.SystemClock{}.TSC()
	var part []byte
	const n = 8000
	for i := range uint64(n) {
		part = append(part, record(1, 5, now+i, words(i))...)
	}
	b.ResetTimer()
	for range b.N {
		if err := errors.Join(k.Take(0, part), k.Until(now)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
}

func BenchmarkRead(b *testing.B) {
	file := kept(b, false, func(_ *Recorder, s *source, k results.RecordKeeper, now uint64) {
		s.define(b, 1, "p:in work a=%di:u64", 0x1000)
		for i := range uint64(1000) {
			var part []byte
			for j := range uint64(100) {
				part = append(part, record(1, 5, now+200*i+j, words(i))...)
			}
			if err := errors.Join(k.Take(int(i%2), part), k.Until(now+200*i)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.ResetTimer()
	n := 0
	for range b.N {
		r, err := NewReader(bytes.NewReader(file))
		for ; err == nil; n++ {
			_, err = r.Next()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/hit")
}
