package planner

import (
	"kprobe/probe/assess"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// Functions are an address space's functions as their files have them, by where they
// start. Their instructions come and go; what was found out of them stays.
type Functions map[symbols.Addr]*assess.Function

// Of decodes the function that contains the site, once.
func (fs Functions) Of(w symbols.Site) (*assess.Function, error) {
	start := survey.Start(w)
	if f := fs[start]; f.Loaded() {
		return f, nil
	}
	f, err := assess.Decode(w.Module.File, w.Func, start)
	if err != nil {
		return nil, err
	}
	return fs.keep(f), nil
}

// Leaving tells how the function that contains the site is left. Its instructions are
// not kept for that.
func (fs Functions) Leaving(w symbols.Site) (*assess.Function, error) {
	if f := fs[survey.Start(w)]; f.KnowsLeaving() {
		return f, nil
	}
	f, err := fs.Of(w)
	if err == nil {
		f.Leaving()
		f.Release()
	}
	return f, err
}

// keep makes a function that was decoded the one that is known.
func (fs Functions) keep(f *assess.Function) *assess.Function {
	if old := fs[f.Start]; old != nil { // it was let go
		old.Load(f)
		return old
	}
	fs[f.Start] = f
	return f
}
