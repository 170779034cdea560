package html

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// The bounds of the heat map.
const (
	columns   = 300
	maxCells  = 1 << 20
	heatFuncs = 24 // that can be looked at alone
)

// heat counts calls by when they ended and how long they took. A column is a time
// that doubles when there is no room for a later one; a row is half a power of two.
type heat struct {
	width uint64 // of a column, ns
	cells map[cell]uint64
	calls map[uint32]uint64 // of each function
	cut   map[uint32]bool   // functions with calls that found no cell
}

// cell is of a function, or of all: 0.
type cell struct {
	fn       uint32
	col, row uint16
}

type heatData struct {
	Width uint64     `json:"width"` // ns of a column
	Lows  []uint64   `json:"lows"`  // where rows begin, and where the last ends
	Maps  []heatFunc `json:"maps"`  // of all functions, then of each
}

type heatFunc struct {
	Name  string   `json:"name"`
	Cells []uint64 `json:"cells"` // column, row, calls
}

// row is the half power of two in which v is.
func row(v uint64) uint16 {
	if v == 0 {
		return 0
	}
	k := bits.Len64(v) - 1
	r := uint16(2 * k)
	if v >= low(r+1) {
		r++
	}
	return r
}

// low is the smallest number of a row.
func low(row uint16) uint64 {
	v := uint64(1) << (row / 2)
	if row%2 == 1 {
		if v == 1 {
			return 2
		}
		v += uint64(float64(v) * (math.Sqrt2 - 1))
	}
	return v
}

func (h *heat) add(at, took uint64, fn uint32) {
	if h.cells == nil {
		h.width, h.cells, h.calls, h.cut = 1<<10, map[cell]uint64{}, map[uint32]uint64{}, map[uint32]bool{}
	}
	for at/h.width >= columns {
		h.width *= 2
		wider := make(map[cell]uint64, len(h.cells))
		for c, n := range h.cells {
			c.col /= 2
			wider[c] += n
		}
		h.cells = wider
	}
	c := cell{col: uint16(at / h.width), row: row(took)}
	h.cells[c]++ // of all: columns times rows at most
	c.fn = fn + 1
	h.calls[c.fn]++
	if _, ok := h.cells[c]; ok || len(h.cells) < maxCells {
		h.cells[c]++
	} else {
		h.cut[c.fn] = true
	}
}

// data is what the page gets; nil without calls.
func (h *heat) data(c *Collector, note func(string, ...any)) *heatData {
	if len(h.cells) == 0 {
		return nil
	}
	var list []uint32
	for fn := range h.calls {
		if !h.cut[fn] {
			list = append(list, fn)
		}
	}
	slices.SortFunc(list, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(h.calls[b], h.calls[a]), cmp.Compare(a, b))
	})
	if len(list) > heatFuncs {
		list = list[:heatFuncs]
	}
	if len(list) < len(h.calls) {
		note("Heat map: %d of %s functions, those with the most calls, can be chosen alone; all are in “all functions”.", len(list), grouped(uint64(len(h.calls))))
	}
	first, last := ^uint16(0), uint16(0)
	keys := make([]cell, 0, len(h.cells))
	for k := range h.cells {
		if k.fn == 0 {
			first, last = min(first, k.row), max(last, k.row)
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b cell) int {
		return cmp.Or(cmp.Compare(a.col, b.col), cmp.Compare(a.row, b.row))
	})
	out := &heatData{Width: h.width, Maps: []heatFunc{{Name: "all functions"}}}
	for r := first; r <= last+1; r++ {
		out.Lows = append(out.Lows, low(r))
	}
	at := map[uint32]int{0: 0}
	for _, fn := range list {
		at[fn] = len(out.Maps)
		out.Maps = append(out.Maps, heatFunc{Name: quotePlain(c.funcs.text(int(fn - 1)))})
	}
	for _, k := range keys {
		if i, ok := at[k.fn]; ok {
			out.Maps[i].Cells = append(out.Maps[i].Cells, uint64(k.col), uint64(k.row-first), h.cells[k])
		}
	}
	return out
}
