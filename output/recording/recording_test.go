package recording

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
)

// sample is a recording of n hits, with every kind of value, and its hits as text.
func sample(t testing.TB, n int) (file []byte, want []string) {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, &Header{Kprobe: "test", Mono: 5, Wall: 7, PIDs: []int{41}, Calls: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Modules(&Modules{PID: 41, List: []Module{{Path: "/bin/x", BuildID: "abcd", Start: 1, End: 2}}}); err != nil {
		t.Fatal(err)
	}
	work, caller := &Place{Name: "work", Module: "x", Addr: 0x1000, Size: 16}, &Place{Name: "main", Addr: 0x2004, Off: 4, Size: 64}
	in := &Event{Group: "kprobes", Name: "in", Entry: true, Fields: []Field{{"n", "s32", Signed}, {"text", "string", Text}}}
	out := &Event{Group: "kprobes", Name: "out", Return: true, Go: true, Fields: []Field{{"u", "u64", Unsigned}, {"x", "", Hex}, {"f", "f64", Float}, {"s", "conn", Shown}}}
	threads := []*Thread{{41, 42, "a", def{}}, {41, 43, "b", def{}}}
	stack := &Stack{Frames: []*Place{work, caller}, End: "truncated"}
	for i := range n {
		h := &Hit{Event: in, Thread: threads[i%2], CPU: i % 3, Time: uint64(1000 * i), Place: work, SP: 0x7ffe0000}
		if i%2 == 1 {
			h.SP, h.G = 0, 0xc000001a40
		}
		if i%2 == 0 {
			h.Values = []Value{{Int: uint64(-i)}, {State: Cut, Text: []byte("hel\x00lo")}}
			h.Stack = stack
		} else {
			h.Event, h.Caller, h.Entry = out, caller, h.Time-uint64(i)
			h.Values = []Value{{Int: 1 << 63}, {State: Fault}, {Float: 1.5}, {State: Printed, Text: []byte("{a=1}")}}
		}
		if err := w.Hit(h); err != nil {
			t.Fatal(err)
		}
		want = append(want, describe(h))
		if i%10 == 9 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(&End{Events: []Count{{Group: "kprobes", Event: "in", Hits: 10, Lost: 2}}}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), want
}

func describe(h *Hit) string {
	s := fmt.Sprintf("%s %s %v %d %d %d %s %#x %#x", h.Event.Name, h.Thread.Comm, h.Event.Return, h.CPU, h.Time, h.Entry, h.Place, h.SP, h.G)
	if h.Caller != nil {
		s += " <- " + h.Caller.String()
	}
	if h.Stack != nil {
		s += fmt.Sprint(h.Stack.End, h.Stack.Frames[0], h.Stack.Frames[1])
	}
	for _, v := range h.Values {
		s += fmt.Sprintf(" %d/%d/%g/%q", v.State, v.Int, v.Float, v.Text)
	}
	return s
}

// read reads all hits, and what ended them.
func read(file []byte) (r *Reader, got []string, err error) {
	if r, err = NewReader(bytes.NewReader(file)); err != nil {
		return nil, nil, err
	}
	for {
		h, err := r.Next()
		if err != nil {
			return r, got, err
		}
		got = append(got, describe(h))
	}
}

func TestRoundTrip(t *testing.T) {
	file, want := sample(t, 55)
	r, got, err := read(file)
	if err != io.EOF {
		t.Fatalf("it ends with %v", err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if r.End == nil || r.End.Hits != 55 || r.End.Events[0].Lost != 2 || r.Header.PIDs[0] != 41 || !r.Header.Calls || r.Modules[0].List[0].BuildID != "abcd" {
		t.Errorf("header %+v, modules %+v, end %+v", r.Header, r.Modules, r.End)
	}
}

// TestCutOff cuts a recording at every byte: what is read is the beginning of what was
// written, and the end is told.
func TestCutOff(t *testing.T) {
	file, want := sample(t, 35)
	most := 0
	for n := range len(file) {
		_, got, err := read(file[:n])
		var damaged *DamagedError
		if !errors.As(err, &damaged) && !errors.Is(err, ErrNotRecording) {
			t.Fatalf("cut at %d: it ends with %v", n, err)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("cut at %d: hit %d is %s, was %s", n, i, got[i], want[i])
			}
		}
		if damaged != nil && len(got) > 0 && damaged.Hits != uint64(len(got)) {
			t.Fatalf("cut at %d: %d hits, the error says %d", n, len(got), damaged.Hits)
		}
		most = max(most, len(got))
	}
	if most != 35 {
		t.Errorf("with all but the end there are %d hits, want 35", most)
	}
}

// TestChangedByte changes every byte: no hit is another one than was written.
func TestChangedByte(t *testing.T) {
	file, want := sample(t, 15)
	for n := range file {
		bad := bytes.Clone(file)
		bad[n] ^= 0x41
		_, got, err := read(bad)
		if err == nil || err == io.EOF {
			t.Fatalf("byte %d changed: nothing is said", n)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("byte %d changed: hit %d is %s, was %s", n, i, got[i], want[i])
			}
		}
	}
}

func TestOtherVersion(t *testing.T) {
	file, _ := sample(t, 1)
	file[len(Magic)] = 9
	var v *VersionError
	if _, _, err := read(file); !errors.As(err, &v) || v.Version != 9 {
		t.Errorf("got %v", err)
	}
}

// TestForgets has more definitions than a file may have at a time.
func TestForgets(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, &Header{})
	if err != nil {
		t.Fatal(err)
	}
	e, th := &Event{Name: "e"}, &Thread{PID: 1, TID: 1}
	const n = maxDefs + 1000
	for i := range n {
		if err := w.Hit(&Hit{Event: e, Thread: th, Time: uint64(i), Place: &Place{Addr: uint64(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(&End{}); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(&b)
	for i := 0; err == nil; i++ {
		var h *Hit
		if h, err = r.Next(); err == nil && h.Place.Addr != uint64(i) {
			t.Fatalf("hit %d is at %#x", i, h.Place.Addr)
		}
	}
	if err != io.EOF || r.End.Hits != n {
		t.Errorf("it ends with %v, %+v", err, r.End)
	}
}

// full is a disk with room for so many bytes.
type full struct {
	bytes.Buffer
	room int
}

var errFull = errors.New("no space left")

func (f *full) Write(b []byte) (int, error) {
	n := min(len(b), f.room-f.Len())
	f.Buffer.Write(b[:n])
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

func TestFullDisk(t *testing.T) {
	f := &full{room: 1000}
	w, err := NewWriter(f, &Header{})
	if err != nil {
		t.Fatal(err)
	}
	e, th, p := &Event{Name: "e"}, &Thread{PID: 1, TID: 1}, &Place{Name: "work"}
	n := 0
	for ; err == nil; n++ {
		if err = w.Hit(&Hit{Event: e, Thread: th, Time: uint64(n), Place: p}); err == nil && n%10 == 0 {
			err = w.Flush()
		}
	}
	if !errors.Is(err, errFull) || !errors.Is(w.Flush(), errFull) {
		t.Fatalf("got %v", err)
	}
	if w.Size() > 1000 || w.Hits() < 10 {
		t.Errorf("%d bytes, %d hits", w.Size(), w.Hits())
	}
	var damaged *DamagedError
	_, got, err := read(f.Bytes())
	if !errors.As(err, &damaged) || len(got) < 10 || len(got) < n-20 {
		t.Errorf("%d of %d hits can be read, then %v", len(got), n, err)
	}
}

// FuzzRead reads anything: it ends, and its work is bounded by the file's size.
func FuzzRead(f *testing.F) {
	file, _ := sample(f, 12)
	f.Add(file, false)
	f.Add(file[blockHead:], true)
	f.Add([]byte("ppppppppthhh"), true)
	f.Fuzz(func(t *testing.T, b []byte, records bool) {
		if records { // with sums that are right, so that records are looked at
			var out bytes.Buffer
			w, err := NewWriter(&out, &Header{})
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > MaxBlock {
				return
			}
			if err := w.out.put(blockData, append(make([]byte, blockHead), b...), 0); err != nil {
				t.Fatal(err)
			}
			b = out.Bytes()
		}
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		for n := 0; ; n++ {
			h, err := r.Next()
			if err != nil {
				return
			}
			if n > len(b) {
				t.Fatalf("%d hits of %d bytes", n, len(b))
			}
			if len(h.Values) != len(h.Event.Fields) || h.Place == nil || h.Thread == nil || h.Event.Return != (h.Caller != nil) {
				t.Fatalf("a hit lacks something: %+v", h)
			}
		}
	})
}

func BenchmarkHit(b *testing.B) {
	w, err := NewWriter(io.Discard, &Header{})
	if err != nil {
		b.Fatal(err)
	}
	in, th, work := &Event{Name: "in", Entry: true}, &Thread{PID: 1, TID: 1}, &Place{Name: "work"}
	h := &Hit{Event: in, Thread: th, Place: work, SP: 0x7ffe00001000}
	b.ReportAllocs()
	for i := range b.N {
		h.Time = uint64(100 * i)
		if err := w.Hit(h); err != nil {
			b.Fatal(err)
		}
	}
}
