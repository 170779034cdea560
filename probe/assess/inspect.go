package assess

import (
	"errors"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"kprobe/probe/insn"
	"kprobe/probe/results"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// inspectAhead is how many functions are taken apart before they are asked for.
const inspectAhead = 64

// Inspect lists the instructions of the function at a place, and for each how
// it would be probed or why it can't be, as if it were the only one. A glob
// lists every function that it matches. It works on files as on processes and
// touches neither. A file's surroundings are taken to be free.
//
// each is called with one function after the other, in order of the places, on the
// caller's goroutine; the listing is its to keep. An error of each ends Inspect,
// which returns it.
//
// Other errors are those of Space.Resolve, and *BoundaryError for an offset inside
// an instruction.
func Inspect(space *symbols.Space, p symbols.Place, each func(*results.Listing) error) error {
	places, err := space.Resolve(p)
	if err != nil {
		return err
	}
	j, err := NewJudge(space, places)
	if err != nil {
		return err
	}
	if len(places) == 1 {
		l, err := j.Inspect(places[0])
		if err != nil {
			return err
		}
		return each(l)
	}
	type job struct {
		at    symbols.Site
		found chan *results.Listing
	}
	jobs, inOrder := make(chan job), make(chan chan *results.Listing, inspectAhead)
	done := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(done)
	wg.Go(func() {
		defer close(jobs)
		defer close(inOrder)
		for _, w := range places {
			next := job{w, make(chan *results.Listing, 1)}
			select {
			case inOrder <- next.found:
			case <-done:
				return
			}
			select {
			case jobs <- next:
			case <-done:
				return
			}
		}
	})
	for range min(runtime.GOMAXPROCS(0), len(places)) {
		wg.Go(func() {
			for w := range jobs {
				// What can't be taken apart is left out, as when a glob is armed.
				l, _ := j.Inspect(w.at)
				w.found <- l
			}
		})
	}
	for found := range inOrder {
		if l := <-found; l != nil {
			if err := each(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// Inspect lists the instructions of the function at a place. Errors are *RefusedError
// and *BoundaryError.
func (j *Judge) Inspect(w symbols.Site) (*results.Listing, error) {
	if w.Module == nil || w.Module.File == nil {
		return nil, &survey.RefusedError{Addr: w.Addr, Place: w.Name(), Rule: "no file is mapped there"}
	}
	f, err := j.take(w)
	if err != nil {
		return nil, &survey.RefusedError{Addr: w.Addr, Place: w.Name(), Rule: err.Error()}
	}
	asked := w
	asked.Addr += symbols.Addr(f.shift)
	if err := survey.Boundary(asked, f.Sweep); err != nil {
		var inside *survey.BoundaryError
		if errors.As(err, &inside) {
			inside.Addr = w.Addr
		}
		return nil, err
	}
	l := &results.Listing{Func: *w.Func, Module: w.Module, Name: w.Func.Symbol.Demangled(), Asked: w.Offset,
		Lines: make([]results.Line, 0, f.Sweep.Len())}
	name := func(a uint64) (string, uint64, bool) {
		n, off, _, _, ok := j.space.Symbolize(symbols.Addr(a))
		return n, off, ok
	}
	for at, in := range f.Sweep.All() {
		off := at - uint64(f.Start)
		code := f.Function.Code[off : off+uint64(in.Len)]
		line := results.Line{
			Addr: symbols.Addr(at - f.shift), Offset: off,
			Bytes: code, Text: insn.Text(code, at-f.shift, name),
		}
		if file, n, ok := j.space.Source(line.Addr); ok && n > 0 {
			line.Source = filepath.Base(file) + ":" + strconv.Itoa(n)
		}
		f.judge(&line, at)
		l.Lines = append(l.Lines, line)
	}
	return l, nil
}
