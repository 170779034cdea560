package ring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// file is a memory file as WriteAt and ReadAt of /proc/PID/mem show it.
type file []byte

func (f file) WriteAt(b []byte, off int64) (int, error) { return copy(f[off:], b), nil }
func (f file) ReadAt(b []byte, off int64) (int, error)  { return bytes.NewReader(f).ReadAt(b, off) }

// live is the bench's file with a header, two probes and a site.
func live(t *testing.T) (*bench, file) {
	t.Helper()
	x := newBench(t, 2, Options{})
	h := Header{Base: 0x7f0000000000, Tracer: 41, Target: 42, Probes: 3, Sites: 2, Maps: 1}
	copy(x.b, h.Encode(x.l))
	for _, p := range []Probe{{ID: 1, Name: "kprobes/a", Addr: 0x1000}, {ID: 3, Name: "kprobes/b", Addr: 0x2000}} {
		copy(x.b[x.l.Probe(p.ID):], p.Encode())
		binary.LittleEndian.PutUint32(x.b[x.l.Flag(p.ID):], FlagEnabled|FlagOptimized)
	}
	s := Site{Addr: 0x1000, Before: []byte{1}, After: []byte{0xcc}}
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	copy(x.b[x.l.Site(1):], b)
	m := Map{Addr: 0x5000, Size: 4096}
	copy(x.b[x.l.Map(0):], m.Encode())
	return x, file(x.b)
}

func TestSnapshot(t *testing.T) {
	x, f := live(t)
	x.put(t, 0, 1, 1, x.now(), "")
	x.put(t, 1, 1, 1, x.now(), "")
	x.p.Count(1, 3, CounterHits, 1)
	x.p.Count(0, 3, CounterFiltered, 1)
	x.p.Count(0, 3, CounterLost, 1)
	x.p.Count(1, 3, CounterMissed, 5)
	s, err := ReadSnapshot(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Probes) != 2 || s.Probes[0].Name != "kprobes/a" || s.Probes[1].Addr != 0x2000 || s.Probes[1].Flags != FlagEnabled|FlagOptimized {
		t.Fatalf("probes %+v", s.Probes)
	}
	if c := s.Probes[0].Counts; c != (Counts{}) {
		t.Errorf("counts of a before anybody has looked: %+v", c)
	}
	if c := s.Probes[1].Counts; c != (Counts{Hits: 3, Filtered: 1, Lost: 1, Missed: 5, Counted: 1}) {
		t.Errorf("counts of b: %+v", c)
	}
	x.r.Look()
	if err := s.Refresh(f); err != nil {
		t.Fatal(err)
	}
	if c := s.Probes[0].Counts; c.Hits != 2 || c.Recorded != 0 || c.Pending() != 2 {
		t.Errorf("counts of a: %+v", c)
	}
	x.poll(t, false)
	if err := s.Refresh(f); err != nil {
		t.Fatal(err)
	}
	if c := s.Probes[0].Counts; c != x.c.Probe(1) || c.Recorded != 2 {
		t.Errorf("counts of a afterwards: %+v", c)
	}
	sites, err := ReadSites(f, &s.Header, s.Layout)
	if err != nil || len(sites) != 1 || sites[0].Addr != 0x1000 {
		t.Errorf("sites %+v, %v", sites, err)
	}
	maps, err := ReadMaps(f, &s.Header, s.Layout)
	if err != nil || len(maps) != 1 || maps[0].Addr != 0x5000 {
		t.Errorf("maps %+v, %v", maps, err)
	}
}

func TestEnable(t *testing.T) {
	x, f := live(t)
	flags := func() uint32 { return binary.LittleEndian.Uint32(f[x.l.Flag(3):]) }
	if err := Enable(f, x.l, 3, false); err != nil || flags() != FlagOptimized {
		t.Errorf("off: %#x, %v", flags(), err)
	}
	if err := Enable(f, x.l, 3, true); err != nil || flags() != FlagOptimized|FlagEnabled {
		t.Errorf("on: %#x, %v", flags(), err)
	}
	for _, id := range []uint32{0, 101} {
		if err := Enable(f, x.l, id, true); !errors.Is(err, ErrParams) {
			t.Errorf("probe %d: %v", id, err)
		}
	}
}

func TestSnapshotRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(x *bench, f file) file
		want error
	}{
		{"no file", func(*bench, file) file { return nil }, io.ErrUnexpectedEOF},
		{"cut off", func(x *bench, f file) file { return f[:x.l.Probes.Off+9] }, io.ErrUnexpectedEOF},
		{"counters cut off", func(x *bench, f file) file { return f[:x.l.PerCPU.Off] }, io.ErrUnexpectedEOF},
		{"swapped ids", func(x *bench, f file) file { f[x.l.Probe(1)] = 3; return f }, ErrCorrupt},
		{"wild name", func(x *bench, f file) file { f[x.l.Probe(1)+7] = 9; return f }, ErrCorrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, f := live(t)
			if _, err := ReadSnapshot(tt.do(x, f), 0); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}
