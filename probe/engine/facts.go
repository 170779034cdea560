package engine

import "kprobe/probe/detour"

// What a plan knows of a probe
//
// Its definition says what is recorded where; how the session takes its hits says what
// its detours do. That is found out as a change is planned, and stays as it is meanwhile:
// the planner asks neither session nor process.

// facts are how the session takes a probe's hits.
type facts struct {
	silent   bool // a hit leaves no record
	counts   bool // a hit is nothing but one more
	anywhere bool // any return that its function's calls may come to may be counted as one of them
	onward   bool // calls that a jump leads who knows where may be followed by breakpoints from there
	limited  bool // somebody said how many of its calls are to be followed at once
	// besides is what else its detours do; nil: nothing.
	besides *besides
}

// besides is what few detours do.
type besides struct {
	inject  *detour.Injection
	control *detour.Control
	bins    *detour.Bins
}

// findFacts finds out how the session takes the probe's hits. It has a number.
func (p *Placed) findFacts() {
	s := p.target.Engine
	f := facts{silent: !s.records(p.user), limited: p.Def.MaxActive != 0 || s.Opts.MaxActive != 0}
	f.counts = f.silent && p.prog.Filter == nil && p.bins == nil && !p.controlled()
	f.onward = !p.goABI && !s.Opts.Detach // a tracer is there
	f.anywhere = f.counts && f.onward
	if x := (besides{p.injection(), p.detourControl(), p.detourBins()}); x != (besides{}) {
		f.besides = &x
	}
	p.facts = f
}
