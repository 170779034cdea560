package survey

import (
	"slices"
	"sync"

	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// Around knows what lies around the functions of modules, and what leads into
// them from other functions. The zero value is ready. It remembers each file: it
// is for one process, where a file lies in one place. It is safe for concurrent
// use.
type Around struct {
	mu      sync.Mutex
	targets map[*symbols.File]*plan.Targets // nil: too large
	entered map[*symbols.File]midst
}

// maxScan is how many bytes of text are searched for branches between functions.
// Larger files do without: guards make their windows safe, too.
const maxScan = 8 << 20

// behind is how many bytes behind a function its jumps may use.
const behind = 64

// Of gives a function's code, of which code are the bytes as Decode or symbols.File.Text gives them, with what
// follows it, and what is known about it.
func (a *Around) Of(code []byte, fn *symbols.Func, m *symbols.Module) ([]byte, plan.Known) {
	file := m.File
	if cap(code) >= len(code)+behind {
		code = code[:len(code)+behind] // Decode has read it
	} else if more, err := file.Text(fn.Start, len(code)+behind); err == nil && len(more) > len(code) {
		code = more
	}
	known := plan.Known{Next: len(code)}
	if next, ok := file.StartAt(fn.End); ok && next >= fn.End {
		known.Next = int(next - fn.Start)
	} else {
		for v := fn.End; v < fn.Start+symbols.Vaddr(len(code)); v++ {
			if start, ok := file.StartAt(v); ok && start == v {
				known.Next = int(v - fn.Start)
				break
			}
		}
	}
	if t := a.scan(m); t != nil {
		known.Target = t.Has
	}
	return code, known
}

const (
	// wide is how far from a function short jumps may lead: 128 bytes, a hole's two
	// jumps, and the longest instruction.
	wide = 160
	// widest bounds the size of a neighbour that is taken apart for that.
	widest = 256 << 10
)

// Wide gives a function, of which sweep are the instructions, together with its
// neighbours, for jumps that need their bytes. It is nil where it has none that are
// code for certain.
func (a *Around) Wide(sweep *insn.Function, fn *symbols.Func, m *symbols.Module) *plan.Func {
	list := []*insn.Function{sweep}
	lo, hi := fn.Start, fn.End
	neighbour := func(v symbols.Vaddr) (symbols.Func, *insn.Function) {
		g, ok := m.File.FuncAt(v)
		if !ok || g.End <= g.Start || g.Size() > widest || !m.File.Certain(g.Start) {
			return g, nil
		}
		_, s, err := Decode(m.File, &g, symbols.Addr(uint64(g.Start)+m.Bias))
		if err != nil || len(s.Desyncs()) > 0 {
			return g, nil
		}
		return g, s
	}
	for fn.Start-lo < wide {
		v := lo - 1
		for ; lo-v < behind; v-- {
			if _, ok := m.File.StartAt(v); ok {
				break
			}
		}
		g, s := neighbour(v)
		if s == nil || g.End > lo {
			break
		}
		list = append([]*insn.Function{s}, list...)
		lo = g.Start
	}
	for hi-fn.End < wide {
		v := hi
		for ; v-hi < behind; v++ {
			if _, ok := m.File.StartAt(v); ok {
				break
			}
		}
		g, s := neighbour(v)
		if s == nil || g.Start < hi {
			break
		}
		list = append(list, s)
		hi = g.End
	}
	if len(list) == 1 {
		return nil
	}
	code, err := m.File.Text(lo, int(hi-lo))
	if err != nil || len(code) < int(hi-lo) {
		return nil
	}
	last, _ := m.File.FuncAt(hi - 1)
	last.Start = lo
	text, known := a.Of(code, &last, m)
	outside := known.Target
	known.Target = func(addr uint64) bool {
		if outside != nil && outside(addr) {
			return true
		}
		return slices.ContainsFunc(list, func(s *insn.Function) bool { return s.Start() == addr })
	}
	return plan.Join(list, text, known)
}

// Scan finds out for a module what Of asks for first: it takes a while for a large
// one.
func (a *Around) Scan(m *symbols.Module) { a.scan(m) }

// scan finds the branches between a module's functions, once; nil where its text
// is too large for that.
func (a *Around) scan(m *symbols.Module) *plan.Targets {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t, ok := a.targets[m.File]; ok {
		return t
	}
	t := scanTargets(m)
	if a.targets == nil {
		a.targets = map[*symbols.File]*plan.Targets{}
	}
	a.targets[m.File] = t
	return t
}

func scanTargets(m *symbols.Module) *plan.Targets {
	lo, hi, n := ^symbols.Vaddr(0), symbols.Vaddr(0), 0
	for start, end := range m.File.EachExtent() {
		lo, hi, n = min(lo, start), max(hi, end), n+1
		if hi-lo > maxScan {
			return nil
		}
	}
	if n == 0 {
		return nil
	}
	text, err := m.File.Text(lo, int(hi-lo))
	if err != nil {
		return nil
	}
	ranges := make([]plan.Range, 0, n)
	for start, end := range m.File.EachExtent() {
		ranges = append(ranges, plan.Range{Lo: uint64(start) + m.Bias, Hi: uint64(end) + m.Bias})
	}
	return plan.ScanTargets(text, uint64(lo)+m.Bias, ranges)
}
