package ring

import (
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func sample() (*Header, Params) {
	return &Header{
		Generation: 3, Base: 0x7f0000000000, Tracer: 41, TracerStart: 99, Target: 42, Created: 1 << 50,
		Probes: 7, Sites: 6, Maps: 2, Time: Sample{123, 456}, Rate: 1 << 31,
	}, Params{CPUs: 2, MaxProbes: 100, RingSize: MinRingSize}
}

func TestHeaderRoundTrip(t *testing.T) {
	h, p := sample()
	l, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	h2, l2, err := DecodeHeader(h.Encode(l))
	if err != nil {
		t.Fatal(err)
	}
	if *h2 != *h || !reflect.DeepEqual(l2, l) {
		t.Errorf("got %+v, %+v\nwant %+v, %+v", h2, l2, h, l)
	}
}

// TestHeaderBefore: what the version before has written is still read, and nothing older.
func TestHeaderBefore(t *testing.T) {
	h, p := sample()
	l, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	b := h.Encode(l)
	b[8] = versionBefore
	if h2, _, err := DecodeHeader(b); err != nil || *h2 != *h {
		t.Errorf("got %+v, %v, want %+v", h2, err, h)
	}
	b[8] = versionBefore - 1
	if _, _, err := DecodeHeader(b); !errors.Is(err, ErrVersion) {
		t.Errorf("an older version: %v", err)
	}
}

func TestHeaderRefused(t *testing.T) {
	le := binary.LittleEndian
	for _, tt := range []struct {
		name string
		do   func(b []byte) []byte
		want error
	}{
		{"short", func(b []byte) []byte { return b[:PageSize-1] }, ErrCorrupt},
		{"empty", func([]byte) []byte { return nil }, ErrCorrupt},
		{"no magic", func(b []byte) []byte { b[0] = 0; return b }, ErrCorrupt},
		{"not ready", func(b []byte) []byte { clear(b[:8]); return b }, ErrNotReady},
		{"other version", func(b []byte) []byte { b[8]++; return b }, ErrVersion},
		{"more sections", func(b []byte) []byte { b[12]++; return b }, ErrCorrupt},
		{"other size", func(b []byte) []byte { b[24]++; return b }, ErrCorrupt},
		{"no CPUs", func(b []byte) []byte { le.PutUint32(b[64:], 0); return b }, ErrCorrupt},
		{"three CPUs", func(b []byte) []byte { le.PutUint32(b[64:], 3); return b }, ErrCorrupt},
		{"more CPUs", func(b []byte) []byte { le.PutUint32(b[64:], 64); return b }, ErrCorrupt},
		{"more probes", func(b []byte) []byte { le.PutUint32(b[68:], 1<<30); return b }, ErrCorrupt},
		{"wild ring", func(b []byte) []byte { le.PutUint64(b[72:], 1<<63); return b }, ErrCorrupt},
		{"other shift", func(b []byte) []byte { b[80] = 63; return b }, ErrCorrupt},
		{"probes beyond", func(b []byte) []byte { le.PutUint32(b[ProbesOff:], 101); return b }, ErrCorrupt},
		{"sites beyond", func(b []byte) []byte { le.PutUint32(b[SitesOff:], 1<<20); return b }, ErrCorrupt},
		{"maps beyond", func(b []byte) []byte { le.PutUint32(b[MapsOff:], ^uint32(0)); return b }, ErrCorrupt},
		{"wild section", func(b []byte) []byte { le.PutUint64(b[directoryOff+directoryEntry+8:], 1<<62); return b }, ErrCorrupt},
		{"wild section size", func(b []byte) []byte { le.PutUint64(b[directoryOff+10*directoryEntry+16:], 1<<39); return b }, ErrCorrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, p := sample()
			l, err := New(p)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := DecodeHeader(tt.do(h.Encode(l))); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func FuzzDecodeHeader(f *testing.F) {
	h, p := sample()
	l, err := New(p)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(h.Encode(l)[:600])
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append(b, make([]byte, PageSize)...)
		h, l, err := DecodeHeader(b)
		if err != nil {
			return
		}
		// What was accepted is a layout of ours, of a size that arithmetic holds.
		if l.Size <= 0 || l.Site(int(h.Sites)) > l.Sites.End() || l.Probe(h.Probes)+ProbeSize > l.Probes.End() {
			t.Fatalf("accepted %+v, %+v", h, l)
		}
	})
}

func TestTableRoundTrip(t *testing.T) {
	p := Probe{ID: 5, Name: "grp/ev", Addr: 0x401000, Tactic: 3, Armed: 77, Group: 4}
	if q, err := DecodeProbe(p.Encode()); err != nil || q != p {
		t.Errorf("probe: %+v, %v", q, err)
	}
	long := Probe{ID: 1, Name: strings.Repeat("n", NameSize+9)}
	if q, err := DecodeProbe(long.Encode()); err != nil || len(q.Name) != NameSize {
		t.Errorf("a long name: %d bytes, %v", len(q.Name), err)
	}
	s := Site{Addr: 0x401000, Tactic: 2, Detour: 1, Copy: 2, Before: []byte{1, 2}, After: []byte{3, 4}, Lo: 0x400ffe, Hi: 0x401005, Group: 6}
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if q, err := DecodeSite(b); err != nil || !reflect.DeepEqual(q, s) {
		t.Errorf("site: %+v, %v", q, err)
	}
	m := Map{Addr: 0x10000, Size: 4096, Used: 9}
	if q, err := DecodeMap(m.Encode()); err != nil || q != m {
		t.Errorf("map: %+v, %v", q, err)
	}
}

func TestTableRefused(t *testing.T) {
	for _, hi := range []uint64{0xfff, 0x1001 + MostOwned} {
		b, err := (&Site{Addr: 0x1000, Before: []byte{1}, After: []byte{2}, Lo: 0x1000, Hi: hi}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		if s, err := DecodeSite(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a patch up to %#x: %+v, %v", hi, s, err)
		}
	}
	if _, err := (&Site{Before: make([]byte, SiteBytes+1), After: make([]byte, SiteBytes+1)}).Encode(); !errors.Is(err, ErrParams) {
		t.Errorf("a patch too long: %v", err)
	}
	if _, err := (&Site{Before: make([]byte, 2), After: make([]byte, 1)}).Encode(); !errors.Is(err, ErrParams) {
		t.Errorf("patches of two lengths: %v", err)
	}
	wild := make([]byte, ProbeSize)
	for i := range wild {
		wild[i] = 0xff
	}
	if _, err := DecodeProbe(wild); !errors.Is(err, ErrCorrupt) {
		t.Errorf("wild probe: %v", err)
	}
	if _, err := DecodeSite(wild); !errors.Is(err, ErrCorrupt) {
		t.Errorf("wild site: %v", err)
	}
	if _, err := DecodeMap(wild); !errors.Is(err, ErrCorrupt) {
		t.Errorf("wild map: %v", err)
	}
	for _, err := range []error{
		func() error { _, err := DecodeProbe(wild[:9]); return err }(),
		func() error { _, err := DecodeSite(wild[:9]); return err }(),
		func() error { _, err := DecodeMap(wild[:9]); return err }(),
	} {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("short entry: %v", err)
		}
	}
}
