package survey

import (
	"runtime"
	"slices"
	"sort"
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

// ways are those that lead out of functions.
type ways struct {
	into   []edge          // into midsts
	from   map[int32]int32 // from where jumps lead to a start; mixed where there are several
	called map[int32]bool  // starts that calls lead to
}

// mixed stands for more than one function.
const mixed = -1

func findEntered(file *symbols.File) midst {
	var spans []span
	for f := range file.EachFunc() {
		if f.End > f.Start {
			spans = append(spans, span{f.Start, f.End})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return int(int64(a.lo) - int64(b.lo)) })
	parts := min(runtime.GOMAXPROCS(0), len(spans)/1000+1)
	found := make([]ways, parts)
	var wg sync.WaitGroup
	for p := range parts {
		wg.Go(func() { found[p].look(file, spans, len(spans)*p/parts, len(spans)*(p+1)/parts) })
	}
	wg.Wait()
	all := &found[0]
	for _, w := range found[1:] {
		all.into = append(all.into, w.into...)
		for to, from := range w.from {
			all.jump(from, to)
		}
		for to := range w.called {
			all.called[to] = true
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
func (w *ways) look(file *symbols.File, spans []span, first, last int) {
	w.from, w.called = map[int32]int32{}, map[int32]bool{}
	var code []byte
	for n := first; n < last; n++ {
		s := spans[n]
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
					w.leads(spans, int32(n), v, i.Flags.Has(insn.Call))
				}
			}
			at += int(i.Len)
		}
	}
}

func (w *ways) leads(spans []span, from int32, v symbols.Vaddr, call bool) {
	to := int32(sort.Search(len(spans), func(i int) bool { return spans[i].lo > v })) - 1
	switch {
	case to < 0 || v >= spans[to].hi:
	case v != spans[to].lo:
		w.into = append(w.into, edge{from, to})
	case call:
		w.called[to] = true
	default:
		w.jump(from, to)
	}
}

func (w *ways) jump(from, to int32) {
	if other, ok := w.from[to]; ok && other != from {
		from = mixed
	}
	w.from[to] = from
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
	by, ok := w.from[e.from]
	return ok && by == e.to && !w.called[e.from] && file.Leads(from.Start)&(symbols.LeadCall|symbols.LeadTaken|symbols.LeadExported) == 0
}
