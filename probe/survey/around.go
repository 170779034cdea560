package survey

import (
	"sync"

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
}

// maxScan is how many bytes of text are searched for branches between functions.
// Larger files do without: guards make their windows safe, too.
const maxScan = 8 << 20

// behind is how many bytes behind a function its jumps may use.
const behind = 64

// Of gives a function's code, of which code are the bytes, with what follows it,
// and what is known about it.
func (a *Around) Of(code []byte, fn symbols.Func, m *symbols.Module) ([]byte, plan.Known) {
	file := m.File
	if more, err := file.Text(fn.Start, len(code)+behind); err == nil && len(more) > len(code) {
		code = more
	}
	known := plan.Known{Next: len(code)}
	if next, ok := file.FuncAt(fn.End); ok && next.Start >= fn.End {
		known.Next = int(next.Start - fn.Start)
	} else {
		for v := fn.End; v < fn.Start+symbols.Vaddr(len(code)); v++ {
			if g, ok := file.FuncAt(v); ok && g.Start == v {
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
	for f := range m.File.EachFunc() {
		lo, hi, n = min(lo, f.Start), max(hi, f.End), n+1
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
	for f := range m.File.EachFunc() {
		ranges = append(ranges, plan.Range{Lo: uint64(f.Start) + m.Bias, Hi: uint64(f.End) + m.Bias})
	}
	return plan.ScanTargets(text, uint64(lo)+m.Bias, ranges)
}
