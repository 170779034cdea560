package probe

import (
	"errors"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"kprobe/probe/insn"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// Inspect lists the instructions of the function at a place, and for each how
// it would be probed or why it can't be, as if it were the only one. A glob
// lists every function that it matches. It works on files as on processes and
// touches neither. A file's surroundings are taken to be free.
//
// Errors are those of Space.Resolve, and *BoundaryError for an offset inside
// an instruction.
func Inspect(space *symbols.Space, p symbols.Place) ([]*Listing, error) {
	places, err := space.Resolve(p)
	if err != nil {
		return nil, err
	}
	j, err := newJudge(space, places)
	if err != nil {
		return nil, err
	}
	if len(places) == 1 {
		l, err := j.inspect(places[0])
		if err != nil {
			return nil, err
		}
		return []*Listing{l}, nil
	}
	found := make([]*Listing, len(places))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(places)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(places) {
					return
				}
				// What can't be taken apart is left out, as when a glob is armed.
				found[i], _ = j.inspect(places[i])
			}
		})
	}
	wg.Wait()
	var out []*Listing
	for _, l := range found {
		if l != nil {
			out = append(out, l)
		}
	}
	return out, nil
}

func (j *judge) inspect(w symbols.Site) (*Listing, error) {
	if w.Module == nil || w.Module.File == nil {
		return nil, &RefusedError{Addr: w.Addr, Place: w.Name, Rule: "no file is mapped there"}
	}
	f, err := j.take(w)
	if err != nil {
		return nil, &RefusedError{Addr: w.Addr, Place: w.Name, Rule: err.Error()}
	}
	asked := w
	asked.Addr += symbols.Addr(f.shift)
	if err := survey.Boundary(asked, f.sweep); err != nil {
		var inside *BoundaryError
		if errors.As(err, &inside) {
			inside.Addr = w.Addr
		}
		return nil, err
	}
	l := &Listing{Func: w.Func, Module: w.Module, Name: w.Func.Symbol.Demangled(), Asked: w.Offset}
	name := func(a uint64) (string, uint64, bool) {
		n, off, _, _, ok := j.space.Symbolize(symbols.Addr(a))
		return n, off, ok
	}
	for at, in := range f.sweep.All() {
		off := at - uint64(f.start)
		code := f.function.code[off : off+uint64(in.Len)]
		line := Line{
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
