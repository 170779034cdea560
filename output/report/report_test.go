package report

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/output/calls"
	"kprobe/output/recording"
)

// sample is a recording: in each of two threads top calls work, which calls itself,
// 10 times; one top never returns, and one is left by an exception.
func sample(t *testing.T) *recording.Reader {
	t.Helper()
	var b bytes.Buffer
	w, err := recording.NewWriter(&b, &recording.Header{Calls: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Modules(&recording.Modules{PID: 1, List: []recording.Module{{Path: "/bin/sample", BuildID: "abcdef", Start: 0x1000, End: 0x9000}}}); err != nil {
		t.Fatal(err)
	}
	top, work := &recording.Place{Name: "top", Addr: 0x1000}, &recording.Place{Name: "work;x", Addr: 0x2000}
	in := &recording.Event{Name: "in", Entry: true, Fields: []recording.Field{{Name: "n", Type: "s32", Kind: recording.Signed}}}
	out := &recording.Event{Name: "out", Return: true}
	now := uint64(1000)
	for tid := 1; tid <= 2; tid++ {
		th := &recording.Thread{PID: 1, TID: tid, Comm: "sample"}
		put := func(h recording.Hit) uint64 {
			now += 10
			h.Thread, h.Time = th, now
			if h.Event == in {
				h.Values = []recording.Value{{Int: uint64(tid)}}
			} else {
				h.Caller = top
			}
			if err := w.Hit(&h); err != nil {
				t.Fatal(err)
			}
			return now
		}
		for i := range 12 {
			a := put(recording.Hit{Event: in, Place: top, SP: 900})
			b := put(recording.Hit{Event: in, Place: work, SP: 800})
			c := put(recording.Hit{Event: in, Place: work, SP: 700})
			put(recording.Hit{Event: out, Place: work, Entry: c})
			if i < 10 {
				put(recording.Hit{Event: out, Place: work, Entry: b})
				put(recording.Hit{Event: out, Place: top, Entry: a})
			}
		}
	}
	if err := w.Close(&recording.End{Events: []recording.Count{{Event: "in", Lost: 1}}}); err != nil {
		t.Fatal(err)
	}
	r, err := recording.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readAll(t *testing.T, by string, also func(r *Report) calls.Sink) (*Report, *recording.Reader) {
	t.Helper()
	in := sample(t)
	r := &Report{By: by}
	if also != nil {
		r.Also = also(r)
	}
	if err := r.Read(in); err != nil {
		t.Fatal(err)
	}
	return r, in
}

func TestRows(t *testing.T) {
	for by, want := range map[string]string{
		"func":   "work:x 46 2 2|top 22 2 2",
		"thread": "sample-1 34 2 2|sample-2 34 2 2",
		"stack":  "top 22 2 2|top;work:x 22 2 2|top;work:x;work:x 24 0 0",
		"n":      "1 34 2 2|2 34 2 2",
	} {
		r, _ := readAll(t, by, nil)
		var got []string
		total := uint64(0)
		for _, row := range r.Rows() {
			got = append(got, fmt.Sprintf("%s %d %d %d", row.Name, row.Calls, row.Open, row.Left))
			if most := (r.Last - r.First) * 2; row.Total > most { // of two threads
				t.Errorf("by %s: %s took %d ns of %d: calls within calls are counted twice", by, row.Name, row.Total, most)
			}
			total += row.Self
		}
		parts := strings.Split(want, "|")
		for _, p := range parts {
			if !strings.Contains("|"+strings.Join(got, "|")+"|", "|"+p+"|") {
				t.Errorf("by %s: %v, want %s", by, got, p)
			}
		}
		if len(got) != len(parts) {
			t.Errorf("by %s: %v, want %v", by, got, parts)
		}
		// What is spent is spent once: the time from each thread's first call to its last.
		if sum := folded(t, r); sum != total {
			t.Errorf("by %s: %d ns in rows, %d in paths", by, total, sum)
		}
	}
}

// folded sums the lines of folded stacks.
func folded(t *testing.T, r *Report) (sum uint64) {
	t.Helper()
	var b bytes.Buffer
	if err := r.Folded(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		at := strings.LastIndexByte(line, ' ')
		var n uint64
		if _, err := fmt.Sscan(line[at:], &n); err != nil || strings.Contains(line[:at], " ") {
			t.Fatalf("line %q: %v", line, err)
		}
		sum += n
	}
	return sum
}

func TestPprof(t *testing.T) {
	r, in := readAll(t, "func", nil)
	name := filepath.Join(t.TempDir(), "pb.gz")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Pprof(f, in); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "tool", "pprof", "-top", "-sample_index=calls", name)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, want := range []string{"Build ID: abcdef", "of 72 total", "work:x", "top"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// field is one of a message of protocol buffers.
type field struct {
	number int
	v      uint64
	b      []byte
}

// wire takes a message apart by the rules of the wire format.
func wire(t *testing.T, b []byte) (out []field) {
	t.Helper()
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			t.Fatal("a tag is cut off")
		}
		b = b[n:]
		if tag&7 == 1 && len(b) >= 8 {
			out, b = append(out, field{number: int(tag >> 3), v: binary.LittleEndian.Uint64(b)}), b[8:]
			continue
		}
		v, n := binary.Uvarint(b)
		if n <= 0 {
			t.Fatal("a number is cut off")
		}
		b = b[n:]
		f := field{number: int(tag >> 3), v: v}
		switch tag & 7 {
		case 0:
		case 2:
			if v > uint64(len(b)) {
				t.Fatal("bytes are cut off")
			}
			f.b, b = b[:v], b[v:]
		default:
			t.Fatalf("wire type %d", tag&7)
		}
		out = append(out, f)
	}
	return out
}

func get(list []field, number int) (field, bool) {
	for _, f := range list {
		if f.number == number {
			return f, true
		}
	}
	return field{}, false
}

// TestPerfetto decodes a trace: tracks are described before they are used, slices nest
// on each, begin and end in order of time, and are as many as there are calls.
func TestPerfetto(t *testing.T) {
	var b bytes.Buffer
	var p *Perfetto
	readAll(t, "func", func(r *Report) calls.Sink {
		p = NewPerfetto(&b, r.Tracks.Now)
		return p
	})
	if err := p.Close(true); err != nil {
		t.Fatal(err)
	}
	tracks := map[uint64]bool{} // those of threads
	open, last, slices, lost := map[uint64]int{}, map[uint64]uint64{}, 0, false
	for _, packet := range wire(t, b.Bytes()) {
		if packet.number != 1 {
			t.Fatalf("field %d of a Trace", packet.number)
		}
		m := wire(t, packet.b)
		if _, ok := get(m, 10); !ok {
			t.Error("a packet has no sequence")
		}
		if _, ok := get(m, 42); ok {
			lost = true
		}
		if d, ok := get(m, 60); ok {
			d := wire(t, d.b)
			id, _ := get(d, 1)
			if th, ok := get(d, 4); ok {
				if name, _ := get(wire(t, th.b), 5); string(name.b) != "sample" {
					t.Errorf("a thread is called %q", name.b)
				}
				tracks[id.v] = true
			}
		}
		e, ok := get(m, 11)
		if !ok {
			continue
		}
		time, _ := get(m, 8)
		ev := wire(t, e.b)
		kind, _ := get(ev, 9)
		track, _ := get(ev, 11)
		if !tracks[track.v] {
			t.Fatalf("track %d isn't described", track.v)
		}
		if time.v < last[track.v] {
			t.Errorf("track %d goes back in time, from %d to %d", track.v, last[track.v], time.v)
		}
		last[track.v] = time.v
		switch kind.v {
		case 1:
			slices++
			open[track.v]++
			if name, _ := get(ev, 23); string(name.b) != "top" && string(name.b) != "work:x" {
				t.Errorf("a slice is called %q", name.b)
			}
		case 2:
			if open[track.v]--; open[track.v] < 0 {
				t.Fatalf("on track %d an end comes without a beginning", track.v)
			}
		}
	}
	for track, n := range open {
		if n != 0 {
			t.Errorf("track %d has %d slices without end", track, n)
		}
	}
	if slices != 72 || len(tracks) != 2 || !lost {
		t.Errorf("%d slices on %d tracks, losses told: %v", slices, len(tracks), lost)
	}
}

// TestPerfettoFlows: the calls of a trace have its id, and a flow of their own leads
// through those whose caller isn't of it; whether entries say so or returns.
func TestPerfettoFlows(t *testing.T) {
	for _, returns := range []bool{false, true} {
		var b bytes.Buffer
		w, err := recording.NewWriter(&b, &recording.Header{Calls: true})
		if err != nil {
			t.Fatal(err)
		}
		fields := []recording.Field{{Name: "trace_id", Type: "string", Kind: recording.Text}}
		in, out := &recording.Event{Name: "in", Entry: true, Fields: fields}, &recording.Event{Name: "out", Return: true}
		if returns {
			out.Fields = fields
		}
		now := uint64(1000)
		threads := []*recording.Thread{{PID: 1, TID: 1, Comm: "a"}, {PID: 1, TID: 2, Comm: "b"}}
		call := func(tid int, sp uint64, trace, name string, below func()) {
			v := []recording.Value{{Text: []byte(trace)}}
			if trace == "" {
				v[0].State = recording.Fault
			}
			place := &recording.Place{Name: name, Addr: 0x1000}
			now += 10
			entry := now
			if !returns {
				if err := w.Hit(&recording.Hit{Thread: threads[tid], Time: now, Event: in, Place: place, SP: sp, Values: v}); err != nil {
					t.Fatal(err)
				}
				v = nil
			}
			if below != nil {
				below()
			}
			now += 10
			if err := w.Hit(&recording.Hit{Thread: threads[tid], Time: now, Event: out, Place: place, Caller: place, Entry: entry, SP: sp, Values: v}); err != nil {
				t.Fatal(err)
			}
		}
		call(0, 900, "A", "handle", func() {
			call(0, 800, "A", "inner", nil)
			call(0, 800, "B", "other", nil)
		})
		call(1, 900, "A", "job", nil)
		call(1, 900, "", "idle", func() { call(1, 800, "A", "late", nil) })
		if err := w.Close(&recording.End{}); err != nil {
			t.Fatal(err)
		}
		rec, err := recording.NewReader(&b)
		if err != nil {
			t.Fatal(err)
		}
		r := &Report{By: "func", Texts: true}
		var trace bytes.Buffer
		p := NewPerfetto(&trace, r.Tracks.Now)
		r.Also = p
		if err := r.Read(rec); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(false); err != nil {
			t.Fatal(err)
		}
		got, ids := map[string]string{}, map[uint64]string{}
		for _, packet := range wire(t, trace.Bytes()) {
			e, ok := get(wire(t, packet.b), 11)
			ev := wire(t, e.b)
			if kind, _ := get(ev, 9); !ok || kind.v != 1 {
				continue
			}
			name, _ := get(ev, 23)
			request, _ := get(ev, 53)
			got[string(name.b)] = string(request.b)
			if id, ok := get(ev, 47); ok {
				got[string(name.b)] += " flow"
				if was := ids[id.v]; was != "" && was != string(request.b) || id.v == 0 {
					t.Errorf("flow %#x is of %s and %s", id.v, was, request.b)
				}
				ids[id.v] = string(request.b)
			}
		}
		want := map[string]string{"handle": "A flow", "inner": "A", "other": "B flow", "job": "A flow", "idle": "", "late": "A flow"}
		if !maps.Equal(got, want) || len(ids) != 2 {
			t.Errorf("told by returns: %v: %v with flows %v, want %v", returns, got, ids, want)
		}
	}
}
