package output

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kprobe/probe/results"
)

// HistTable is a histogram as data, for drawing.
type HistTable struct {
	Group, Event string
	Trigger      string // what is counted, as the kernel's trigger has it
	Keys, Vals   []string
	Rows         []HistRow
	Hits         uint64
	Dropped      uint64 // hits for whose values there was no room
	Lost, All    uint64 // hits that were lost, of all
	// By is the index of the value that rows are sorted by; -1: the number of hits, or a
	// key.
	By int
}

// HistRow is an entry of a histogram.
type HistRow struct {
	Keys  []string // as texts; stacks have a line for each frame
	Count uint64
	Vals  []uint64
}

// Tables gives the histograms as data, with empty ones where an event had no hit. Rows are
// in the spec's order; where it names none, those of one number by that number, and others
// with the largest first.
func (g *Histograms) Tables(stats []results.Stats) []HistTable {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []HistTable
	for _, h := range g.shown(stats) {
		t := HistTable{Group: h.event.Group, Event: h.event.Name, Trigger: h.spec.String(), Hits: h.hits, Dropped: h.dropped}
		t.Lost, t.All = h.lost(stats)
		for i := range h.spec.keys {
			t.Keys = append(t.Keys, h.spec.keys[i].name)
		}
		var vals []int
		for j := range h.spec.vals {
			if name := h.spec.vals[j].name; !slices.Contains(t.Vals, name) {
				t.Vals, vals = append(t.Vals, name), append(vals, j)
			}
		}
		list := h.sorted()
		if !h.spec.ordered {
			number := len(t.Keys) == 1 && !slices.ContainsFunc(list, func(e *histEntry) bool { return e.raw[0] == 0 && e.texts[0] != "" })
			slices.SortStableFunc(list, func(a, b *histEntry) int {
				if number {
					return cmp.Compare(a.raw[0], b.raw[0])
				}
				return cmp.Compare(b.count, a.count)
			})
		}
		t.By = slices.Index(t.Vals, h.spec.sorts[0].name)
		for i, e := range list {
			if i > 0 && !h.spec.ordered && len(t.Keys) == 1 {
				t.Rows = append(t.Rows, h.between(list[i-1], e, len(vals))...)
			}
			row := HistRow{Keys: keyTexts(e.json, len(t.Keys)), Count: e.count}
			for _, j := range vals {
				row.Vals = append(row.Vals, e.sums[j])
			}
			t.Rows = append(t.Rows, row)
		}
		out = append(out, t)
	}
	return out
}

// mostBetween bounds the empty rows between two entries.
const mostBetween = 64

// between are the ranges between two entries of a histogram of one key that no hit was in.
func (h *hist) between(a, b *histEntry, vals int) (out []HistRow) {
	key := &h.spec.keys[0]
	step := uint64(1)
	switch {
	case a.raw[0] >= b.raw[0]:
		return nil
	case key.mod == "buckets":
		step = key.buckets
	case key.mod != "log2":
		return nil
	}
	if (b.raw[0]-a.raw[0])/step > mostBetween {
		return nil
	}
	for v := a.raw[0] + step; v < b.raw[0]; v += step {
		k := histKey{spec: key, v: v}
		object := append(k.appendJSON([]byte{'{'}, nil), '}')
		out = append(out, HistRow{Keys: keyTexts(object, 1), Vals: make([]uint64, vals)})
	}
	return out
}

// keyTexts are the values of an entry's object of keys as texts, in their order.
func keyTexts(object []byte, n int) []string {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	out := make([]string, 0, n)
	if _, err := d.Token(); err != nil { // the brace
		return make([]string, n)
	}
	for range n {
		var v any
		if _, err := d.Token(); err != nil || d.Decode(&v) != nil { // the name, the value
			v = ""
		}
		out = append(out, keyText(v))
	}
	return out
}

func keyText(v any) string {
	switch v := v.(type) {
	case nil:
		return "(fault)"
	case string:
		return v
	case json.Number:
		return v.String()
	case []any:
		var lines []string
		for _, f := range v {
			lines = append(lines, frameLine(f))
		}
		return strings.Join(lines, "\n")
	case map[string]any:
		switch {
		case v["from"] != nil && v["from"] == v["to"]:
			return fmt.Sprint(v["from"])
		case v["from"] != nil:
			return fmt.Sprint(v["from"], " – ", v["to"])
		case v["comm"] != nil:
			return fmt.Sprint(v["comm"], "-", v["pid"])
		case v["text"] != nil:
			return fmt.Sprint(v["text"], "…")
		}
	}
	return fmt.Sprint(v)
}

// frameLine is a frame of a stack, of its object.
func frameLine(v any) string {
	f, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprint(v)
	}
	if sym, ok := f["sym"].(string); ok {
		return sym
	}
	return fmt.Sprint(f["ip"])
}
