package output

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"

	"kprobe/fetch"
	"kprobe/probe/results"
)

// Bin has hits counted in the process that they come from, where that gives the same
// histogram: one key that is a number, by powers of two or in buckets as wide as one,
// and no values but the hit count.
func (g *Histograms) Bin(ev *results.Event, prog *fetch.Program) *results.Bin {
	if g.Next != nil || g.Limit != 0 {
		return nil
	}
	var out *results.Bin
	for _, spec := range g.Specs {
		if ev.Def != nil && !spec.For(ev.Def) {
			continue
		}
		bin := spec.bin(prog)
		if bin == nil || out != nil {
			return nil // two histograms want records
		}
		out = bin
	}
	return out
}

func (h *HistSpec) bin(prog *fetch.Program) *results.Bin {
	if len(h.keys) != 1 || len(h.vals) > 0 {
		return nil
	}
	k := &h.keys[0]
	fields := prog.Fields()
	i := slices.IndexFunc(fields, func(x fetch.Field) bool { return x.Name == k.name })
	if i < 0 {
		return nil
	}
	switch t := fields[i].Type; {
	case t.IsArray() || t.Layout != nil || t.IsText() || t.Base == fetch.Float || t.Base == fetch.Char:
		return nil
	case k.mod == "log2":
		return &results.Bin{Arg: i, Form: results.FormLog2}
	case k.mod == "buckets" && k.buckets&(k.buckets-1) == 0:
		return &results.Bin{Arg: i, Form: results.FormShift, Shift: uint8(bits.TrailingZeros64(k.buckets))}
	}
	return nil
}

// Counted says what the processes have counted until now.
func (g *Histograms) Counted(bins []results.Bins) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bins = bins
}

// merged are the histograms with what the processes have counted. mu must be held.
func (g *Histograms) merged() []*hist {
	out := slices.Clone(g.all)
	own := map[*hist]bool{} // copies
	for i := range g.bins {
		b := &g.bins[i]
		at := slices.IndexFunc(g.Specs, func(s *HistSpec) bool {
			return len(s.keys) == 1 && s.keys[0].name == b.Arg && (b.Event.Def == nil || s.For(b.Event.Def))
		})
		if at < 0 || b.Count == 0 {
			continue
		}
		spec := g.Specs[at]
		n := slices.IndexFunc(out, func(h *hist) bool { return h.spec == spec && h.event == b.Event })
		if n < 0 {
			n = len(out)
			out = append(out, &hist{spec: spec, event: b.Event})
		}
		if h := out[n]; !own[h] {
			c := *h
			if c.entries = maps.Clone(h.entries); c.entries == nil {
				c.entries = map[string]*histEntry{}
			}
			out[n], own[&c] = &c, true
		}
		out[n].merge(b)
	}
	return out
}

// merge adds what was counted elsewhere to a copy of a histogram.
func (h *hist) merge(b *results.Bins) {
	f := &h.spec.keys[0]
	for cell, n := range b.Cells {
		if n == 0 {
			continue
		}
		v := uint64(cell) // of log2
		if b.Bin.Form == results.FormShift {
			v <<= b.Bin.Shift
		}
		key := string(binary.LittleEndian.AppendUint64([]byte{0}, v))
		e := h.entries[key]
		if e == nil && len(h.entries) >= h.spec.size {
			h.dropped += n
			continue
		}
		next := &histEntry{}
		if e != nil {
			*next = *e
		} else {
			k := histKey{spec: f, v: v}
			next.raw, next.texts = []uint64{v}, []string{""}
			next.shown = append(k.appendText([]byte("{ "), nil), " }"...)
			next.json = append(k.appendJSON([]byte("{"), nil), '}')
		}
		next.count += n
		h.hits += n
		h.entries[key] = next
	}
}
