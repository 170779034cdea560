package planner

import (
	"runtime"
	"sync"

	"kprobe/probe/assess"
	"kprobe/probe/plan"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// The planner needs the functions' decoded code. It runs on one CPU, so the others decode functions
// a little ahead of it. Behind the planner the decoded code is released: that of all functions of a
// large program would take more memory than everything else.

// aheadOf is how many pieces of work are started before their results are needed. To hand one over takes longer
// than a small function's decoding, so a worker takes up to runOf at once.
const (
	aheadOf = 64
	runOf   = 16
)

// LetGoFrom is the number of places from which on decoded functions are released.
const LetGoFrom = 4096

// ahead calls work for 0 to n-1 on all CPUs. next returns the results in order, and may be called at
// most n times. The caller must call stop, which waits for the goroutines. Work that has not begun then is left out.
func ahead[T any](n int, work func(i int) T) (next func() T, stop func()) {
	type run struct {
		from, to int
		done     chan []T
	}
	workers := runtime.GOMAXPROCS(0)
	size := max(1, min(runOf, n/(4*workers))) // so that each worker has some
	jobs, inOrder, over := make(chan run), make(chan chan []T, aheadOf/size), make(chan struct{})
	isOver := func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(jobs)
		for i := 0; i < n; i += size {
			r := run{i, min(i+size, n), make(chan []T, 1)}
			select {
			case inOrder <- r.done:
			case <-over:
				return
			}
			select {
			case jobs <- r:
			case <-over:
				return
			}
		}
	})
	for range min(workers, n) {
		wg.Go(func() {
			for r := range jobs {
				out := make([]T, 0, r.to-r.from)
				for i := r.from; i < r.to && !isOver(); i++ {
					out = append(out, work(i))
				}
				r.done <- out
			}
		})
	}
	var got []T
	return func() (first T) {
		if len(got) == 0 {
			got = <-<-inOrder
		}
		first, got[0] = got[0], first // what was taken isn't held any longer
		got = got[1:]
		return first
	}, func() { close(over); wg.Wait() }
}

// atStart reports whether a place is the start of a function that isn't Go's. There %rsp is the stack
// pointer whatever the function does, so group needs no decoded function.
func atStart(w symbols.Site) bool {
	return w.Addr == survey.Start(w) && w.Func.End > w.Func.Start && w.Module != nil && w.Module.File != nil && !w.Module.File.IsGo()
}

// reading is the memory for one function after another.
type reading struct {
	assess.Decoder
	plan plan.Func
}

// readings are those that nobody uses.
var readings = sync.Pool{New: func() any { return new(reading) }}

// decodedAhead returns of, which is Functions.Of for the places in order. Functions that are not
// decoded yet are decoded ahead. The functions of places atStart may have no instructions.
func (fs Functions) decodedAhead(ws []Request) (of func(w symbols.Site) (*assess.Function, error), stop func()) {
	type found struct {
		f   *assess.Function
		err error
	}
	var list []*symbols.Site
	seen := map[symbols.Addr]bool{}
	for i := range ws {
		w := &ws[i]
		if start := survey.Start(w.Site); w.Site.Module != nil && w.Site.Module.File != nil && !seen[start] && !fs[start].Loaded() && !atStart(w.Site) {
			seen[start] = true
			list = append(list, &w.Site)
		}
	}
	next, stop := ahead(len(list), func(i int) found {
		w := list[i]
		f, err := assess.Decode(w.Module.File, w.Func, survey.Start(*w))
		return found{f, err}
	})
	rest := list // the workers don't use rest
	return func(w symbols.Site) (*assess.Function, error) {
		start := survey.Start(w)
		if f := fs[start]; atStart(w) && f != nil {
			return f, nil
		} else if atStart(w) {
			return fs.keep(&assess.Function{Fn: w.Func, Start: start, Size: int(w.Func.Size())}), nil
		}
		for seen[start] && len(rest) > 0 {
			is := survey.Start(*rest[0]) == start
			got := next()
			if rest = rest[1:]; !is {
				continue // of was never called for its places
			}
			if got.err != nil {
				return nil, got.err
			}
			return fs.keep(got.f), nil
		}
		return fs.Of(w)
	}, stop
}

// LeavingAhead finds out on all CPUs how the functions of places are left. After known was called for a
// place, Functions.Leaving knows it. known must be called with the places in order.
func (fs Functions) LeavingAhead(places []symbols.Site) (known func(symbols.Site), stop func()) {
	var list []*symbols.Site
	seen := make(map[symbols.Addr]bool, len(places))
	for i := range places {
		w := &places[i]
		if start := survey.Start(*w); w.Module != nil && w.Module.File != nil && !w.Module.File.IsGo() && !seen[start] && !fs[start].KnowsLeaving() {
			seen[start] = true
			list = append(list, w)
		}
	}
	of := list // known changes list
	next, stop := ahead(len(of), func(i int) *assess.Function {
		w, d := of[i], readings.Get().(*reading)
		defer readings.Put(d)
		f, err := d.Decode(w.Module.File, w.Func, survey.Start(*w))
		if err != nil {
			return nil // Functions.Leaving will return the error
		}
		f.Leaving()
		f.Release()
		return f
	})
	return func(w symbols.Site) {
		for seen[survey.Start(w)] {
			got := next()
			delete(seen, survey.Start(*list[0]))
			if list = list[1:]; got != nil {
				fs.keep(got)
			}
		}
	}, stop
}

// preparedFunction is what the planner takes from files for a function.
type preparedFunction struct {
	f    *assess.Function
	plan *plan.Func
	err  error
	in   *reading // has what f and plan consist of; nil: they have memory of their own
}

// release gives back what f and plan consist of.
func (x *preparedFunction) release() {
	if x.in != nil {
		readings.Put(x.in)
	}
}

// preparedAhead returns next, which yields what the planner needs from files, for the functions of list
// in order. many says that the planner releases each.
func (o *planner) preparedAhead(list []*assess.Function, groups map[*assess.Function][]Request, many bool) (next func() preparedFunction, stop func()) {
	type job struct {
		f  *assess.Function // only its constant fields are read, unless it is a copy
		at *symbols.Site
		// loaded says that f is a copy that has its instructions.
		loaded bool
	}
	jobs := make([]job, len(list))
	for i, f := range list {
		ws := groups[f]
		if len(ws) == 0 {
			continue
		}
		if jobs[i] = (job{f: f, at: &ws[0].Site}); f.Loaded() {
			now := *f
			jobs[i].f, jobs[i].loaded = &now, true
		}
	}
	around := o.ground.Around
	return ahead(len(list), func(i int) (out preparedFunction) {
		j := &jobs[i]
		if j.at == nil {
			return out
		}
		f, decode, fill := j.f, assess.Decode, plan.FromSweep
		if many {
			out.in = readings.Get().(*reading)
			decode, fill = out.in.Decode, out.in.plan.Refill
		}
		if !j.loaded {
			if f, out.err = decode(j.at.Module.File, j.f.Fn, j.f.Start); out.err != nil {
				return out
			}
		}
		code, known := around.Of(f.Code, f.Fn, j.at.Module)
		out.f, out.plan = f, fill(f.Sweep, code, known)
		return out
	})
}
