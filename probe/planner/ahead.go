package planner

import (
	"runtime"
	"sync"

	"kprobe/probe/assess"
	"kprobe/probe/plan"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// What a plan takes from files, the functions' code taken apart, is worked out on all
// CPUs a little ahead of the planner, which is one, and let go behind it: the functions
// of a large program together would take more memory than all the rest.

// aheadOf is how many pieces of work are begun before they are asked for.
const aheadOf = 64

// LetGoFrom is from how many places on functions are let go.
const LetGoFrom = 4096

// ahead has work done for 0 to n-1 on all CPUs. next gives the results in order and is
// called at most n times; stop must be called in the end, and waits for those that work.
func ahead[T any](n int, work func(i int) T) (next func() T, stop func()) {
	type piece struct {
		i    int
		done chan T
	}
	jobs, inOrder, over := make(chan piece), make(chan chan T, aheadOf), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(jobs)
		for i := range n {
			p := piece{i, make(chan T, 1)}
			select {
			case inOrder <- p.done:
			case <-over:
				return
			}
			select {
			case jobs <- p:
			case <-over:
				return
			}
		}
	})
	for range min(runtime.GOMAXPROCS(0), n) {
		wg.Go(func() {
			for p := range jobs {
				p.done <- work(p.i)
			}
		})
	}
	return func() T { return <-<-inOrder }, func() { close(over); wg.Wait() }
}

// atStart reports whether a place is where a function starts that isn't Go's: there the
// stack is a stack whatever the function does, and it needn't be decoded to be grouped.
func atStart(w symbols.Site) bool {
	return w.Addr == survey.Start(w) && w.Func.End > w.Func.Start && w.Module != nil && w.Module.File != nil && !w.Module.File.IsGo()
}

// decodedAhead gives the functions of places, in the order of the places, as
// functions.of does; those that it doesn't know are decoded ahead, but for those of
// places atStart, whose instructions may be missing.
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
	rest := list // which the workers don't look at
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
				continue // nobody has asked for it
			}
			if got.err != nil {
				return nil, got.err
			}
			return fs.keep(got.f), nil
		}
		return fs.Of(w)
	}, stop
}

// leavingAhead has all CPUs find out how the functions of places are left. known, which
// is called with the places in order, has functions.leaving know it.
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
	of := list // list is the caller's
	next, stop := ahead(len(of), func(i int) *assess.Function {
		w := of[i]
		f, err := assess.Decode(w.Module.File, w.Func, survey.Start(*w))
		if err != nil {
			return nil // who asks is told
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
}

// preparedAhead gives what files tell of functions, in order.
func (o *planner) preparedAhead(list []*assess.Function, groups map[*assess.Function][]Request) (next func() preparedFunction, stop func()) {
	type job struct {
		f  *assess.Function // of which only what never changes is looked at, or a copy
		at *symbols.Site
		// loaded: f is a copy, whose instructions are at hand.
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
		f := j.f
		if !j.loaded {
			if f, out.err = assess.Decode(j.at.Module.File, j.f.Fn, j.f.Start); out.err != nil {
				return out
			}
		}
		code, known := around.Of(f.Code, f.Fn, j.at.Module)
		out.f, out.plan = f, plan.FromSweep(f.Sweep, code, known)
		return out
	})
}
