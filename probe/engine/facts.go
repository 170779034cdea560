package engine

import "kprobe/probe/planner"

// findFacts sets the probe's Facts, by which plans know how the session takes its hits. The probe
// has a number already.
func (p *Placed) findFacts() {
	s := p.target.Engine
	f := planner.Facts{Silent: !s.records(p.user()), Limited: p.Def.MaxActive != 0 || s.Opts.MaxActive != 0}
	f.Counts = f.Silent && p.Program.Filter == nil && p.bins() == nil && !p.controlled()
	f.Onward = !p.GoABI && !s.Opts.Detach // the tracer can follow the call
	f.Anywhere = f.Counts && f.Onward
	p.Facts = f
	rare := p.Rarely()
	rare.Besides = planner.Besides{Inject: p.injection(), Control: p.detourControl(), Bins: p.detourBins()}
	p.SetRare(rare)
}
