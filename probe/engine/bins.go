package engine

import (
	"kprobe/probe/detour"
	"kprobe/probe/results"
	"kprobe/probe/ring"
)

// Hits that are counted by a number
//
// If a session's sink needs only the distribution of a number (Options.Bin), the detours count
// hits in rows of the memory file (ring.Bins). A probe has its row as long as it has its number.
// After that its counts stay with its event.

// rows is the number of rows in a memory file of the session. Probes that get none record their
// hits.
func (s *Engine) rows() int {
	if s.Opts.Bin == nil {
		return 0
	}
	return 1024
}

// placedBins is a probe's row.
type placedBins struct {
	results.Bin
	row int
	off int64
}

// giveRow assigns a row to a probe if its hits can be counted by a number and a row is free. t.mu
// is held.
func (t *Feed) giveRow(p *Placed) {
	if p.rare != nil {
		p.rare.bins = nil
	}
	if t.engine.Opts.Bin == nil || p.user() != nil || !t.engine.records(p.user()) || t.engine.timed() || len(p.triggers()) > 0 {
		return
	}
	bin := t.engine.Opts.Bin(&p.Ev.Event, p.Program)
	if bin == nil || !detour.CanBin(p.Program, bin.Arg) {
		return
	}
	row := t.usedRows
	if n := len(t.freeRows); n > 0 {
		row, t.freeRows = t.freeRows[n-1], t.freeRows[:n-1]
	} else if row == t.File.Layout.Rows {
		return
	} else {
		t.usedRows++
	}
	p.rarer().bins = &placedBins{*bin, row, t.File.Layout.RowOff(row)}
}

// takeRow adds a probe's counts to those of its event, and frees its row. No detour uses the row
// any more. t.mu is held.
func (t *Feed) takeRow(p *Placed) {
	if p.bins() == nil {
		return
	}
	b := t.counters.Bins(p.bins().row)
	t.counters.ClearBins(p.bins().row)
	t.freeRows = append(t.freeRows, p.bins().row)
	p.Ev.keepBins(p, &b)
}

func (p *Placed) detourBins() *detour.Bins {
	if p.bins() == nil {
		return nil
	}
	return &detour.Bins{Arg: p.bins().Arg, Form: p.bins().Form, Shift: p.bins().Shift, Row: p.bins().off}
}

// binsKey identifies a distribution: probes with the same key are counted together.
type binsKey struct {
	fn, arg string
	bin     results.Bin
}

func (p *Placed) binsKey() binsKey {
	return binsKey{fn: p.returnsFrom(), arg: p.Program.Fields()[p.bins().Arg].Name, bin: p.bins().Bin}
}

// keepBins keeps the counts of a probe that is removed.
func (e *Event) keepBins(p *Placed, b *ring.Bins) {
	e.mu.Lock()
	defer e.mu.Unlock()
	addBins(&e.pastBins, p.binsKey(), b)
	p.rare.bins = nil
}

func addBins(to *map[binsKey]*ring.Bins, k binsKey, b *ring.Bins) {
	if *to == nil {
		*to = map[binsKey]*ring.Bins{}
	}
	if (*to)[k] == nil {
		(*to)[k] = &ring.Bins{}
	}
	(*to)[k].Add(b)
}

// Binned returns what was counted by Options.Bin until now, in no particular order.
func (s *Engine) Binned() []results.Bins {
	var out []results.Bins
	s.Events.held(func(all []*Event) {
		for _, e := range all {
			var sum map[binsKey]*ring.Bins
			for b := e; b != nil; {
				b = b.addBins(&sum)
			}
			for k, b := range sum {
				out = append(out, results.Bins{Event: &e.Event, Func: k.fn, Arg: k.arg, Bin: k.bin, BinCounts: *b})
			}
		}
	})
	return out
}

// addBins adds the event's counts to sum, and returns the removed event of the same name; nil: none.
func (e *Event) addBins(sum *map[binsKey]*ring.Bins) (before *Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, b := range e.pastBins {
		addBins(sum, k, b)
	}
	for _, p := range e.probes {
		if p.bins() != nil {
			b := p.feed.counters.Bins(p.bins().row)
			addBins(sum, p.binsKey(), &b)
		}
	}
	return e.Before
}
