package output

import (
	"encoding/binary"
	"fmt"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/results"
)

// What processes have counted and what comes as hits give the same as hits alone.
func TestCountedAsHits(t *testing.T) {
	s := newScene(t)
	values := []uint64{0, 1, 2, 3, 4, 5, 8, 9, 100, 1023, 1024, 1025, 1 << 20, 1<<40 + 3}
	for _, key := range []string{"n.log2", "n.buckets=16", "n.buckets=1:sort=n:size=128", "n.log2:sort=n.descending"} {
		spec, err := ParseHist(key)
		if err != nil {
			t.Fatal(err)
		}
		whole, parts := &Histograms{Specs: []*HistSpec{spec}}, &Histograms{Specs: []*HistSpec{spec}}
		h := s.hit(t, "p:web/work work n=$arg1", fetch.Regs{}, nil)
		bin := parts.Bin(h.Event, h.Program)
		if bin == nil {
			t.Fatalf("%s isn't counted in the process", key)
		}
		b := results.Bins{Event: h.Event, Arg: "n", Bin: *bin}
		for i, v := range values {
			binary.LittleEndian.PutUint64(h.Data, v)
			if err := whole.Hit(h); err != nil {
				t.Fatal(err)
			}
			cell, ok := bin.Form.Bin(v, bin.Shift)
			if i%3 == 0 || !ok {
				if err := parts.Hit(h); err != nil {
					t.Fatal(err)
				}
				continue
			}
			for len(b.Cells) <= cell {
				b.Cells = append(b.Cells, 0)
			}
			b.Cells[cell]++
			b.Count++
		}
		stats := []results.Stats{{Event: h.Event, Hits: uint64(len(values)), Recorded: uint64(len(values))}}
		for range 2 { // what is shown twice is counted once
			parts.Counted([]results.Bins{b})
			for _, f := range []func(*Histograms) []byte{
				func(g *Histograms) []byte { return g.AppendText(nil, stats) },
				func(g *Histograms) []byte { return g.AppendJSON(nil, stats, -1) },
			} {
				if got, want := string(f(parts)), string(f(whole)); got != want {
					t.Errorf("%s:\n%s\nwant\n%s", key, got, want)
				}
			}
		}
	}
}

// What needs more than one number's bins is recorded.
func TestNotBins(t *testing.T) {
	s := newScene(t)
	for _, tt := range []struct{ key, def string }{
		{"n", "n=$arg1"}, {"n.buckets=10", "n=$arg1"}, {"n.log2,m.log2", "n=$arg1 m=$arg2"}, {"n.log2:vals=m", "n=$arg1 m=$arg2"},
		{"common_pid", "n=$arg1"}, {"m.log2", "n=$arg1"},
	} {
		spec, err := ParseHist(tt.key)
		if err != nil {
			t.Fatal(err)
		}
		h := s.hit(t, "p:web/work work "+tt.def, fetch.Regs{}, nil)
		if bin := (&Histograms{Specs: []*HistSpec{spec}}).Bin(h.Event, h.Program); bin != nil {
			t.Errorf("%s of %s: %+v", tt.key, tt.def, bin)
		}
	}
	spec, _ := ParseHist("n.log2")
	h := s.hit(t, "p:web/work work n=$arg1", fetch.Regs{}, nil)
	for i, g := range []*Histograms{{Specs: []*HistSpec{spec, spec}}, {Specs: []*HistSpec{spec}, Limit: 3}, {Specs: []*HistSpec{spec}, Next: &Histograms{}}} {
		if g.Bin(h.Event, h.Program) != nil {
			t.Errorf("%d is counted in the process", i)
		}
	}
}

func TestLatencyCounted(t *testing.T) {
	s := newScene(t)
	times := []uint64{3, 1000, 1023, 70, 5_000_000, 5_000_000, 9}
	whole, _ := called(t, s, map[string][]uint64{"open": times})
	parts, _ := called(t, s, map[string][]uint64{"open": times[:2]})
	b := results.Bins{Func: "open"}
	for key := range parts.rows {
		b.Event = key.event
	}
	for i, v := range times[2:] {
		cell, _ := results.FormFine.Bin(v, 0)
		for len(b.Cells) <= cell {
			b.Cells = append(b.Cells, 0)
		}
		b.Cells[cell]++
		b.Count++
		b.Sum += v
		if b.Most = max(b.Most, v); i == 0 || v < b.Least {
			b.Least = v
		}
	}
	parts.Counted([]results.Bins{b})
	show := func(l *Latency) string { return fmt.Sprintf("%+v", l.Calls(nil, true)) }
	if got, want := show(parts), show(whole); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
