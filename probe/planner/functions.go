package planner

import (
	"kprobe/probe/assess"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// Functions are an address space's functions, as their files have them, by the address where they start.
// Their decoded instructions may be released. What was found out about them stays.
type Functions map[symbols.Addr]*assess.Function

// Of returns the function that contains the site, with its instructions. It decodes them if they aren't
// there.
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

// Leaving returns the function that contains the site, and knows how it is left (Function.Leaving). It
// may have no instructions.
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

// keep enters a decoded function, and returns the one that is known by that start.
func (fs Functions) keep(f *assess.Function) *assess.Function {
	if old := fs[f.Start]; old != nil { // its instructions were released
		old.Load(f)
		return old
	}
	fs[f.Start] = f
	return f
}
