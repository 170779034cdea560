package output

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"kprobe/fetch"
	"kprobe/internal/quote"
	"kprobe/probe/results"
)

// histKey is one key of an entry that is about to be shown.
type histKey struct {
	spec           *histField
	v              uint64 // the number, modifier applied
	text           []byte
	isText         bool
	state          byte   // of the text
	signed, symbol bool   // of the number's type
	comm           string // the thread's name
}

// The widths of hist_trigger_print_key (kernel/trace/trace_events_hist.c).
const (
	histNumber = 10
	histText   = 50
	histSym    = 45
	histSymOff = 55
	histComm   = 16
)

// appendText appends "NAME: VALUE" in the form of the kernel's
// hist_trigger_print_key. Signed numbers keep their sign, and texts of the program are
// quoted as in lines.
func (k *histKey) appendText(dst []byte, sym fetch.Symbolizer) []byte {
	dst = append(quote.AppendPlain(dst, k.spec.name), ':', ' ')
	if k.isText {
		var text []byte
		switch k.state {
		case textWhole, textCut:
			if text = quote.AppendText(nil, k.text); k.state == textCut {
				text = append(text, "..."...)
			}
		default:
			text = quote.AppendPlain(nil, k.text)
		}
		return appendLeft(dst, string(text), histText)
	}
	switch {
	case k.spec.mod == "hex":
		return strconv.AppendUint(dst, k.v, 16)
	case k.spec.mod == "sym":
		return appendLeft(k.appendAddress(dst), quote.Plain(symbol(sym, k.v)), histSym)
	case k.spec.mod == "sym-offset" || k.symbol:
		return appendLeft(k.appendAddress(dst), quote.Plain(string(fetch.AppendSymbol(nil, k.v, sym))), histSymOff)
	case k.spec.mod == "log2":
		return appendLeft(append(dst, "~ 2^"...), strconv.FormatUint(k.v, 10), 2)
	case k.spec.mod == "buckets":
		dst = appendPadded(append(dst, '~', ' '), k.v, 0, ' ')
		return appendPadded(append(dst, '-'), k.v+k.spec.buckets-1, 0, ' ')
	case k.spec.mod == "execname":
		dst = appendLeft(dst, quote.Plain(k.comm), histComm)
		return append(appendPadded(append(dst, '['), k.v, histNumber, ' '), ']')
	case k.signed:
		return appendRight(dst, strconv.FormatInt(int64(k.v), 10), histNumber)
	}
	return appendPadded(dst, k.v, histNumber, ' ')
}

func (k *histKey) appendAddress(dst []byte) []byte {
	return append(strconv.AppendUint(append(dst, '['), k.v, 16), ']', ' ')
}

// appendJSON appends "NAME":VALUE, or "NAME#2":VALUE if the keys before have the name in another form. What stands for a range is an object with
// its ends, a symbol or a thread's name is text.
func (k *histKey) appendJSON(dst []byte, sym fetch.Symbolizer) []byte {
	dst = append(quote.AppendJSON(dst, k.spec.key), ':')
	switch {
	case k.isText && k.state == textFault:
		return append(dst, "null"...)
	case k.state == textCut:
		dst = quote.AppendJSON(append(dst, `{"text":`...), k.text)
		return append(dst, `,"cut":true}`...)
	case k.isText:
		return quote.AppendJSON(dst, k.text)
	case k.spec.mod == "sym":
		if name := symbol(sym, k.v); name != "" {
			return quote.AppendJSON(dst, name)
		}
		return append(appendHex(append(dst, '"'), k.v), '"')
	case k.spec.mod == "sym-offset" || k.symbol:
		return quote.AppendJSON(dst, fetch.AppendSymbol(nil, k.v, sym))
	case k.spec.mod == "log2":
		from, to := uint64(0), uint64(1)
		if k.v > 0 {
			from, to = 1<<(k.v-1)+1, 1<<k.v // 2^64 is beyond: 0
		}
		if k.v == 64 {
			to = 1<<64 - 1
		}
		return appendRange(dst, from, to)
	case k.spec.mod == "buckets":
		return appendRange(dst, k.v, k.v+k.spec.buckets-1)
	case k.spec.mod == "execname":
		dst = quote.AppendJSON(append(dst, `{"comm":`...), k.comm)
		return append(appendCount(append(dst, `,"pid":`...), k.v), '}')
	}
	t := fetch.Type{Base: fetch.Unsigned, Size: 8}
	if k.signed {
		t.Base = fetch.Signed
	}
	return fetch.AppendJSON(dst, t, fetch.Value{Int: k.v}, nil)
}

// appendHistStack appends a stack in the form of the kernel's
// hist_trigger_stacktrace_print: a line for each frame.
func appendHistStack(dst []byte, h *results.Hit, sym fetch.Symbolizer) []byte {
	dst = append(dst, fieldStack+":\n"...)
	for _, at := range h.Stack {
		dst = append(dst, "         "...)
		code := at.Addr
		if at.Call {
			code-- // of a call that ends a function what follows is another's
		}
		switch name, off, size, ok := sym.SymbolAt(code); {
		case at.Signal:
			dst = append(dst, "<signal handler called>"...)
		case ok:
			dst = appendHex(append(quote.AppendPlain(dst, name), '+'), off+uint64(at.Addr-code))
			dst = appendHex(append(dst, '/'), size)
		default:
			dst = appendHex(dst, uint64(at.Addr))
		}
		dst = append(dst, '\n')
	}
	return dst
}

// appendHistStackJSON appends a stack as the objects of hits have it.
func appendHistStackJSON(dst []byte, key string, h *results.Hit) []byte {
	f := Formatter{Form: JSON}
	dst = append(quote.AppendJSON(dst, key), ":["...)
	for i, at := range h.Stack {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, f.describe(h.Space, at).json...)
	}
	return append(dst, ']')
}

func appendRange(dst []byte, from, to uint64) []byte {
	dst = appendCount(append(dst, `{"from":`...), from)
	return append(appendCount(append(dst, `,"to":`...), to), '}')
}

// AppendText appends the histograms as the kernel's hist files have them, of
// each event its own; those of stats that had no hit are empty. Hits that were lost
// are in no entry: a line of the totals says how many, if there are any.
func (g *Histograms) AppendText(dst []byte, stats []results.Stats) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, h := range g.shown(stats) {
		if i > 0 {
			dst = append(dst, '\n', '\n')
		}
		dst = append(dst, "# event histogram\n#\n# event: "...)
		dst = quote.AppendPlain(append(quote.AppendPlain(dst, h.event.Group), '/'), h.event.Name)
		dst = quote.AppendPlain(append(dst, "\n# trigger info: "...), h.spec.String())
		dst = append(dst, " [active]\n#\n\n"...)
		ranges := h.ranges()
		for _, e := range h.sorted() {
			dst = append(append(dst, e.shown...), " hitcount: "...)
			dst = appendPadded(dst, e.count, histNumber, ' ')
			for j, sum := range e.sums {
				dst = appendHistVal(append(dst, ' ', ' '), &h.spec.vals[j], sum, ranges[j])
			}
			dst = append(dst, '\n')
		}
		dst = appendPadded(append(dst, "\nTotals:\n    Hits: "...), h.hits, 0, ' ')
		dst = appendPadded(append(dst, "\n    Entries: "...), uint64(len(h.entries)), 0, ' ')
		dst = appendPadded(append(dst, "\n    Dropped: "...), h.dropped, 0, ' ')
		if lost, all := h.lost(stats); lost > 0 {
			dst = appendPadded(append(dst, "\n    Lost: "...), lost, 0, ' ')
			dst = append(append(append(dst, " ("...), percent(lost, all)...), ')')
		}
		dst = append(dst, '\n')
	}
	return dst
}

// lost gives how many hits of the histogram's event were lost before they could be
// counted, and of how many.
func (h *hist) lost(stats []results.Stats) (lost, all uint64) {
	for i := range stats {
		if stats[i].Event == h.event {
			return stats[i].Lost, stats[i].Recorded + stats[i].Lost
		}
	}
	return 0, 0
}

// histRange is what the kernel calls hist_val_stat: of a value, the sum and the
// largest over all entries.
type histRange struct{ total, max uint64 }

// ranges gives the ranges of the values.
func (h *hist) ranges() []histRange {
	out := make([]histRange, len(h.spec.vals))
	for _, e := range h.entries {
		for j, sum := range e.sums {
			out[j].total += sum
			out[j].max = max(out[j].max, sum)
		}
	}
	return out
}

// histBar is the width of a bar.
const histBar = 20

// appendHistVal appends "NAME: VALUE" as the kernel's hist_trigger_print_val.
func appendHistVal(dst []byte, f *histField, sum uint64, r histRange) []byte {
	dst = quote.AppendPlain(dst, f.name)
	switch f.mod {
	case "percent":
		part, ok := hundredths(sum, r.total)
		if !ok {
			return append(dst, " (%):[ERROR]"...)
		}
		dst = appendPadded(append(dst, " (%): "...), part/100, 3, ' ')
		return appendPadded(append(dst, '.'), part%100, 2, '0')
	case "graph":
		dst = append(dst, ':', ' ')
		part, ok := hundredths(sum, r.max)
		if !ok {
			return appendRight(dst, "[ERROR]", histBar)
		}
		return appendLeft(dst, strings.Repeat("#", int(part)*histBar/10000), histBar)
	case "hex":
		return appendRight(append(dst, ':', ' '), strconv.FormatUint(sum, 16), histNumber)
	}
	return appendPadded(append(dst, ':', ' '), sum, histNumber, ' ')
}

// hundredths gives how many hundredths of a per cent v is of all, as the
// kernel's __get_percentage; all may have wrapped around to less than v.
func hundredths(v, all uint64) (part uint64, ok bool) {
	if v >= math.MaxUint64/10000 {
		all /= 10000
	} else {
		v *= 10000
	}
	if all == 0 {
		return 0, v == 0
	}
	return min(v/all, 10000), true
}

// AppendJSON appends one object for each histogram. seconds is when, since the
// start; below 0 it is left out.
func (g *Histograms) AppendJSON(dst []byte, stats []results.Stats, seconds float64) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.shown(stats) {
		dst = append(dst, `{"type":"hist",`...)
		if seconds >= 0 {
			dst = append(strconv.AppendFloat(append(dst, `"time":`...), seconds, 'f', 3, 64), ',')
		}
		dst = quote.AppendJSON(append(dst, `"group":`...), h.event.Group)
		dst = quote.AppendJSON(append(dst, `,"event":`...), h.event.Name)
		dst = quote.AppendJSON(append(dst, `,"trigger":`...), h.spec.String())
		dst = appendCount(append(dst, `,"hits":`...), h.hits)
		dst = appendCount(append(dst, `,"dropped":`...), h.dropped)
		if lost, all := h.lost(stats); lost > 0 {
			dst = appendCount(append(dst, `,"lost":`...), lost)
			dst = appendPercent(append(dst, `,"lost_percent":`...), lost, all)
		}
		dst = append(dst, `,"entries":[`...)
		for i, e := range h.sorted() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(dst, `{"keys":`...), e.json...)
			dst = appendCount(append(dst, `,"hitcount":`...), e.count)
			if len(e.sums) > 0 {
				dst = append(dst, `,"vals":{`...)
				n := 0
				for j, sum := range e.sums {
					name := h.spec.vals[j].name
					if slices.ContainsFunc(h.spec.vals[:j], func(f histField) bool { return f.name == name }) {
						continue // in another form
					}
					if n++; n > 1 {
						dst = append(dst, ',')
					}
					dst = appendCount(append(quote.AppendJSON(dst, name), ':'), sum)
				}
				dst = append(dst, '}')
			}
			dst = append(dst, '}')
		}
		dst = append(dst, ']', '}', '\n')
	}
	return dst
}

// shown are the histograms, and empty ones where an event had no hit that
// could tell whether it has the values. mu must be held.
func (g *Histograms) shown(stats []results.Stats) []*hist {
	out := g.merged()
	for _, spec := range g.Specs {
		for i := range stats {
			e := stats[i].Event
			known := false
			for _, h := range out {
				known = known || h.event == e && h.spec == spec
			}
			if !known && stats[i].Recorded == 0 && e.Def != nil && spec.For(e.Def) {
				out = append(out, &hist{spec: spec, event: e})
			}
		}
	}
	return out
}

// For reports whether a definition has, or may have, the values that the
// histogram needs: which ones $arg* and jprobes have is known when they are
// armed.
func (h *HistSpec) For(d *fetch.Def) bool {
	if h.Stack() && d.Stack == 0 || h.Where(d.Kind == fetch.Return) != "" {
		return false
	}
	for _, name := range h.Args() {
		found := d.Kind == fetch.Jprobe
		for _, a := range d.Args {
			found = found || a.Name == name || a.Expr.Op == fetch.ExprAllArgs || a.Type.Base == fetch.Struct
		}
		if !found {
			return false
		}
	}
	return true
}
