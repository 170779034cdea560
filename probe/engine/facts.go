package engine

import "kprobe/probe/planner"

// findFacts finds out how the session takes the probe's hits, for plans. It has a number.
func (p *Placed) findFacts() {
	s := p.target.Engine
	f := planner.Facts{Silent: !s.records(p.user), Limited: p.Def.MaxActive != 0 || s.Opts.MaxActive != 0}
	f.Counts = f.Silent && p.Program.Filter == nil && p.bins == nil && !p.controlled()
	f.Onward = !p.GoABI && !s.Opts.Detach // a tracer is there
	f.Anywhere = f.Counts && f.Onward
	if x := (planner.Besides{Inject: p.injection(), Control: p.detourControl(), Bins: p.detourBins()}); x != (planner.Besides{}) {
		f.Besides = &x
	}
	p.Facts = f
}
