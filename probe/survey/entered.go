package survey

import (
	"runtime"
	"slices"
	"strings"
	"sync"

	"kprobe/probe/insn"
	"kprobe/symbols"
)

// Who comes into a function's midst
//
// Nearly every function is entered at its start and nowhere else: then each of its
// returns is the end of a call of it. Assembly has others, which code of other functions
// jumps or calls into. Parts of a function that lie somewhere else (f.cold) jump back into
// it: they are of it where nothing else leads to them.

// midst holds the functions of a file that are entered elsewhere than at their starts, by
// where they start.
type midst map[symbols.Vaddr]bool

// EnteredInside reports whether code of other functions of the module leads into the
// midst of the function that starts at an address. Of a module it goes through all
// instructions, once, on all CPUs.
func (a *Around) EnteredInside(m *symbols.Module, start symbols.Vaddr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	in, ok := a.entered[m.File]
	if !ok {
		in = findEntered(m.File)
		if a.entered == nil {
			a.entered = map[*symbols.File]midst{}
		}
		a.entered[m.File] = in
	}
	return in[start]
}

// span is a function's code.
type span struct{ lo, hi symbols.Vaddr }

// edge is a way from one function into another's midst; both are numbers of spans.
type edge struct{ from, to int32 }

// finder finds spans, which are in order of their starts, by addresses.
type finder struct {
	spans []span
	// pages has for each page from the first span's on, and for one more, how many spans start before it. It is nil
	// where the spans lie far apart.
	pages []int32
}

// pageSize is that of the pages of finder.
const pageSize = 4096

func newFinder(spans []span) *finder {
	f := &finder{spans: spans}
	if len(spans) == 0 {
		return f
	}
	n := (spans[len(spans)-1].lo-spans[0].lo)/pageSize + 2
	if n > symbols.Vaddr(len(spans))*4+2 {
		return f
	}
	f.pages = make([]int32, n)
	k := 0
	for p := range f.pages {
		for k < len(spans) && spans[k].lo-spans[0].lo < symbols.Vaddr(p)*pageSize {
			k++
		}
		f.pages[p] = int32(k)
	}
	return f
}

// at gives the last span that starts at an address or before it; -1: none does.
func (f *finder) at(v symbols.Vaddr) int32 {
	lo, hi := 0, len(f.spans)
	if hi == 0 || v < f.spans[0].lo {
		return -1
	}
	if p := (v - f.spans[0].lo) / pageSize; p+1 < symbols.Vaddr(len(f.pages)) {
		lo, hi = int(f.pages[p]), int(f.pages[p+1])
	}
	for lo < hi {
		if mid := (lo + hi) / 2; f.spans[mid].lo <= v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return int32(lo) - 1
}

// ways are those that lead out of functions.
type ways struct {
	into   []edge  // into midsts
	from   []int32 // for each span, from where jumps lead to its start: nowhere, a span, or mixed
	called []bool  // for each span, whether a call leads to its start
}

const (
	nowhere = -1
	mixed   = -2 // more than one function
)

func newWays(n int) ways {
	return ways{from: slices.Repeat([]int32{nowhere}, n), called: make([]bool, n)}
}

func findEntered(file *symbols.File) midst {
	var spans []span
	for start, end := range file.EachExtent() {
		if end > start {
			spans = append(spans, span{start, end})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return int(int64(a.lo) - int64(b.lo)) })
	parts := min(runtime.GOMAXPROCS(0), len(spans)/1000+1)
	find := newFinder(spans)
	found := make([]ways, parts)
	var wg sync.WaitGroup
	for p := range parts {
		wg.Go(func() {
			found[p] = newWays(len(spans))
			found[p].look(file, find, len(spans)*p/parts, len(spans)*(p+1)/parts)
		})
	}
	wg.Wait()
	all := &found[0]
	for _, w := range found[1:] {
		all.into = append(all.into, w.into...)
		for to := range spans {
			all.jump(w.from[to], int32(to))
			all.called[to] = all.called[to] || w.called[to]
		}
	}
	out := midst{}
	for _, e := range all.into {
		if !all.pieceOf(file, spans, e) {
			out[spans[e.to].lo] = true
		}
	}
	return out
}

// look goes through the instructions of some of the spans.
func (w *ways) look(file *symbols.File, find *finder, first, last int) {
	var code []byte
	for n := first; n < last; n++ {
		s := find.spans[n]
		var err error
		if code, err = file.AppendText(code[:0], s.lo, int(s.hi-s.lo)); err != nil {
			continue
		}
		for at := 0; at < len(code); {
			i, err := insn.DecodePart(code[at:])
			if err != nil {
				at++
				continue
			}
			if t, ok := i.Target(uint64(s.lo)+uint64(at), code[at:]); ok {
				if v := symbols.Vaddr(t); v < s.lo || v >= s.hi {
					w.leads(find, int32(n), v, i.Flags.Has(insn.Call))
				}
			}
			at += int(i.Len)
		}
	}
}

func (w *ways) leads(find *finder, from int32, v symbols.Vaddr, call bool) {
	to := find.at(v)
	switch {
	case to < 0 || v >= find.spans[to].hi:
	case v != find.spans[to].lo:
		w.into = append(w.into, edge{from, to})
	case call:
		w.called[to] = true
	default:
		w.jump(from, to)
	}
}

func (w *ways) jump(from, to int32) {
	switch w.from[to] {
	case nowhere:
		w.from[to] = from
	case from:
	default:
		if from != nowhere {
			w.from[to] = mixed
		}
	}
}

// pieceOf reports whether what leads into a function's midst is a part of it.
func (w *ways) pieceOf(file *symbols.File, spans []span, e edge) bool {
	from, ok := file.FuncAt(spans[e.from].lo)
	if !ok {
		return false
	}
	if from.Symbol.Kind != symbols.KindFDE {
		to, ok := file.FuncAt(spans[e.to].lo)
		return ok && strings.HasPrefix(from.Symbol.Name, to.Symbol.Name+".cold")
	}
	// One without a name: what jumps to it, and nothing calls, nor takes its address.
	return w.from[e.from] == e.to && !w.called[e.from] && file.Leads(from.Start)&(symbols.LeadCall|symbols.LeadTaken|symbols.LeadExported) == 0
}
