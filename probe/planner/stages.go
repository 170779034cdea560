package planner

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"

	"kprobe/probe/asm"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// How detours are put together
//
// A patch's detour consists of stages: the code of the probes of one address, and the displaced
// instructions up to the next. Probes that can't share code are separate stages at the same
// address, one after another (apart).

// tailFunc emits the end of a stage: the copies, and the jump back or to the next stage.
type tailFunc = func(c *asm.Code) error

// build builds the detours of a jump, for the address that the plan has chosen.
func (o *planner) build(p *plan.Patch, byAddr siteRequests) (*Patch, error) {
	if !p.Bypasses() {
		return o.buildLed(p, byAddr, nil, nil)
	}
	// Branches in the copies lead to detours whose addresses are known when all are built.
	lead := map[uint64]uint64{}
	for q := p; q != nil; q = q.Island {
		if q.Tactic == plan.Bypass {
			lead[q.Sites[0]] = q.Detour
		}
	}
	for range 3 {
		out, err := o.buildLed(p, byAddr, lead, nil)
		if err != nil {
			return nil, err
		}
		led := out.bypassed()
		if maps.Equal(led, lead) {
			return out, nil
		}
		lead = led
	}
	return nil, errors.New("the branches in its copies don't settle")
}

// bypassed are the places to which branches in the copies of the patch and its islands do not
// lead, each with the detour that they lead to.
func (p *Patch) bypassed() map[uint64]uint64 {
	out := map[uint64]uint64{}
	for q := p; q != nil; q = q.Island {
		if q.Plan.Tactic == plan.Bypass {
			at := q.Plan.Site()
			to, _ := q.Entry(symbols.Addr(at))
			out[at] = uint64(to)
		}
	}
	return out
}

// buildLed is build for known places of detours to which branches in the copies lead. owner is the patch that
// p makes room for as an island; nil: none.
func (o *planner) buildLed(p *plan.Patch, byAddr siteRequests, lead map[uint64]uint64, owner *Patch) (*Patch, error) {
	if !p.Tactic.Jump() {
		return &Patch{Plan: p.Pack(nil)}, nil
	}
	var few [4]stageStart
	starts, others := o.stagesOf(p, byAddr, few[:0])
	out := newPatch(len(starts))
	kept := false // owner has its requests already
	if owner == nil {
		owner = out
		out.Wants, kept = o.wantsOf(p, byAddr)
	}
	if p.Island != nil {
		island, err := o.buildLed(p.Island, byAddr, lead, owner)
		if err != nil {
			return nil, err
		}
		out.Island = island
		out.Plan = p.Pack(&island.Plan)
	} else {
		out.Plan = p.Pack(nil)
	}
	displaced := out.Plan.Displaced()
	owner.Wants = append(owner.Wants, others...)
	base := p.Detour
	end := p.Detour + uint64(p.Room)
	for i, s := range starts {
		from := s.at - p.At
		code := displaced[from:]
		opts := insn.Options{Lead: lead}
		if i+1 < len(starts) {
			code = displaced[from : starts[i+1].at-p.At]
			opts.NoJumpBack = true
		}
		st := &out.Stages[i]
		*st = Stage{Base: symbols.Addr(base), At: symbols.Addr(s.at), patch: owner}
		if !kept {
			st.first = uint16(len(owner.Wants))
		}
		var next uint64
		if i+1 < len(starts) && len(s.sites) > 0 {
			// The size doesn't depend on where the next stage lies.
			trial, err := o.stage(st, s.sites, code, opts, base+memory.PageSize)
			if err != nil {
				return nil, err
			}
			next = (base + uint64(len(trial)) + 15) &^ 15
		}
		text, err := o.stage(st, s.sites, code, opts, next)
		if err != nil {
			return nil, err
		}
		if base+uint64(len(text)) > end {
			return nil, errRoom
		}
		o.texts.Keep(out, i, text)
		if owner != out || lead != nil {
			x := st.rarely()
			if x.lead = lead; owner != out {
				x.island = out
			}
			st.rare = &x
		}
		if len(owner.Wants)+len(s.sites) > math.MaxUint16 {
			return nil, errors.New("too many probes share its jump")
		}
		if !kept {
			owner.Wants = append(owner.Wants, s.sites...)
		}
		if base += uint64(len(text)); next != 0 {
			base = next
		}
	}
	return out, nil
}

// stage builds one stage at its base. next is the base of the following stage, to which this one's copies end
// in a jump; 0: this is the last, or it has only copies, which run on into what follows.
func (o *planner) stage(st *Stage, ws []Request, code []byte, opts insn.Options, next uint64) ([]byte, error) {
	tail := func(c *asm.Code) error {
		st.copyAt = uint32(c.Here() - uint64(st.Base))
		if len(code) == 0 {
			c.JmpAddr(next)
			return nil
		}
		m, err := o.mover.Window(code, uint64(st.At), c.Here(), opts)
		if err != nil {
			return err
		}
		st.copies(code, m, opts)
		c.Raw(m.Code...)
		if next != 0 {
			c.JmpAddr(next)
		}
		return nil
	}
	if len(ws) == 0 {
		m, err := o.mover.Window(code, uint64(st.At), uint64(st.Base), opts)
		st.copies(code, m, opts)
		return m.Code, err
	}
	o.params.Sketch = o.sketches[keyOf(ws)]
	return o.probes(st, ws, tail)
}

// probes builds the stage of probes that share it.
func (o *planner) probes(st *Stage, ws []Request, tail tailFunc) ([]byte, error) {
	switch last := ws[len(ws)-1]; {
	case last.Kind == Exit:
		return o.leaveStage(st, ws, tail)
	case last.Kind == Return:
		return o.course(last.P).Way().buildEntry(o, st, ws, tail)
	}
	params := o.goParams(ws[0])
	params.FlagsDead = o.flagsDead(ws)
	var d *detour.Detour
	var err error
	if ws[0].Kind == LoneExit {
		d, err = detour.BuildExit(uint64(st.Base), params, o.probesOf(ws), nil, tail)
	} else {
		d, err = detour.Build(uint64(st.Base), params, o.probesOf(ws), tail)
	}
	if err != nil {
		return nil, err
	}
	st.keep(d, len(ws))
	return d.Code, nil
}

// probesOf describes the probes of requests. The list is valid until the next call.
func (o *planner) probesOf(ws []Request) []detour.Probe {
	out := o.probeIn[:0]
	for _, w := range ws {
		by := o.course(w.P).ByExits
		p := detour.Probe{
			ID: w.P.Id, Program: w.P.Program, CountOnly: w.P.Silent, IP: uint64(w.P.Where.Addr),
			Anywhere: by != nil && by.Anywhere,
		}
		if x := w.P.Rare; x != nil {
			p.Birth, p.Landing, p.Inject, p.Control, p.Bins = x.Birth, x.Landing, x.Inject, x.Control, x.Bins
		}
		out = append(out, p)
	}
	o.probeIn = out
	return out
}

// noted reports whether a return probe among the requests at a function's entry notes calls in the given
// common table. Then calls that arrive there need no other stage.
func (o *planner) noted(ws []Request, table uint64) bool {
	return slices.ContainsFunc(ws, func(w Request) bool {
		by := o.course(w.P).ByExits
		return w.Kind == Return && by != nil && by.Calls().Common && by.Calls().Addr == table
	})
}

// sameTable reports whether the calls of two return probes are in one table.
func (o *planner) sameTable(a, b Request) bool {
	x, y := o.course(a.P).ByExits, o.course(b.P).ByExits
	return x != nil && y != nil && x.Calls().Common && x.Calls().Addr == y.Calls().Addr
}

// apart divides the requests at one address into parts, each of which is one stage. The parts are:
//
//   - all entry probes, together with the first return probe if that is by exits
//   - all exits that are hits by themselves
//   - each other return probe
//   - for each common table and kind of passing, all exits, with those that are hits by themselves if one detour can
//     count them all
//   - each other exit
//
// There is at least one part, which may be empty. A part of one request may be ws itself. others are the
// requests that need no stage.
func (o *planner) apart(ws []Request) (parts [][]Request, others []Request) {
	if oneStage(ws) {
		return [][]Request{ws}, nil
	}
	var entries, leaves []Request
	var out, landings [][]Request
	type way struct {
		table   uint64
		passing detour.Passing
	}
	tables := map[way]int{}
	var noted map[uint64]bool // by table
	for _, w := range ws {
		switch {
		case w.P.Rarely().Landing != nil:
			landings = append(landings, []Request{w})
		case w.Kind == Entry:
			entries = append(entries, w)
		case w.Kind == LoneExit || w.Kind == Exit && w.Alone:
			leaves = append(leaves, w)
		case w.Kind == Exit && o.course(w.P).ByExits.Calls().Common:
			at := way{o.course(w.P).ByExits.Calls().Addr, w.Passing}
			if w.Passing == detour.Arrives {
				is, known := noted[at.table]
				if !known {
					if noted == nil {
						noted = map[uint64]bool{}
					}
					is = o.noted(ws, at.table)
					noted[at.table] = is
				}
				if is {
					others = append(others, w)
					continue
				}
			}
			n, ok := tables[at]
			if !ok {
				n, tables[at], out = len(out), len(out), append(out, nil)
			}
			out[n] = append(out[n], w)
			if w.Within(*w.P.Where) {
				out[n][0], out[n][len(out[n])-1] = w, out[n][0] // the function's own probe comes first: most calls here are its
			}
		case w.Kind == Return:
			w.Twins = 0
			for _, before := range out {
				if before[0].Kind == Return && o.sameTable(before[0], w) {
					w.Twins |= TwinBefore
					before[0].Twins |= TwinBehind
				}
			}
			out = append(out, []Request{w})
		default:
			out = append(out, []Request{w})
		}
	}
	if at := o.joins(leaves, out); at >= 0 {
		out[at] = append(leaves, out[at]...)
	} else if len(leaves) > 0 {
		out = append([][]Request{leaves}, out...)
	}
	slices.SortStableFunc(out, func(a, b []Request) int { return cmp.Compare(leavingRank(a), leavingRank(b)) })
	switch {
	case len(entries) > 0 && len(out) > 0 && out[0][0].Kind == Return && o.course(out[0][0].P).ByExits != nil:
		out[0] = append(entries, out[0]...)
	case len(entries) > 0 || len(out)+len(landings) == 0:
		out = append([][]Request{entries}, out...)
	}
	return append(landings, out...), others
}

// leavingRank orders the parts at one address. In a function of one instruction calls are noted and arrive before that
// instruction leaves it.
func leavingRank(part []Request) int {
	switch w := part[0]; {
	case w.Kind == Return:
		return 0
	case w.Kind == Exit && w.Passing == detour.Arrives:
		return 1
	}
	return 2
}

// joins is the index of the part with exits of a common table that may be one stage with exits that are hits by
// themselves; negative: there is none.
func (o *planner) joins(leaves []Request, parts [][]Request) int {
	if len(leaves) == 0 || slices.ContainsFunc(leaves, func(w Request) bool { return w.Kind != Exit }) {
		return -1
	}
	return slices.IndexFunc(parts, func(ws []Request) bool {
		w := ws[0]
		if w.Kind != Exit || w.Passing != detour.NotPassing {
			return false
		}
		k, ps := o.course(w.P).ByExits.Calls(), o.probesOf(slices.Concat(leaves, ws))
		return k.Common && o.params.CountsReturns(ps[:len(leaves)], ps[len(leaves):], k)
	})
}

// oneStage reports whether the requests at one address, of which there may be none, are one stage as they are.
func oneStage(ws []Request) bool {
	return len(ws) == 0 || len(ws) == 1 && ws[0].Twins == 0 // an earlier plan may have set it
}

// takes reports whether calls of functions that only the program knows may come to the jump that notes these calls.
func (o *planner) takes(noting []Request) bool {
	return slices.ContainsFunc(noting, func(w Request) bool { return o.course(w.P).ByExits.taken })
}

// ownHits is how many of the requests of a stage are exits that are hits by themselves. They come first.
func ownHits(ws []Request) int {
	if n := slices.IndexFunc(ws, func(w Request) bool { return !w.Alone }); n >= 0 {
		return n
	}
	return len(ws)
}

// enterStage builds the stage of an entry by exits. The last of ws is the return probe, the others are entry
// probes.
func (o *planner) enterStage(st *Stage, ws []Request, tail tailFunc) ([]byte, error) {
	last := ws[len(ws)-1]
	ps, x, params := o.probesOf(ws), o.course(last.P).ByExits, o.goParams(last)
	params.FlagsDead = o.flagsDead(ws)
	calls := x.Calls()
	calls.Joined, calls.StartsOver = last.Twins&TwinBefore != 0 || x.StartsOver, x.StartsOver
	calls.Follows = last.Twins&TwinBehind != 0 && x.StartsOver
	d, err := detour.BuildEnter(uint64(st.Base), params, ps[:len(ps)-1], ps[len(ps)-1], calls, tail)
	if err != nil {
		return nil, err
	}
	st.keep(d, len(ws))
	st.exits = x
	return d.Code, nil
}

// leaveStage builds the stage of an exit. The requests in ws share it.
func (o *planner) leaveStage(st *Stage, ws []Request, tail tailFunc) ([]byte, error) {
	w, last := ws[0], ws[len(ws)-1]
	params, x := o.goParams(w), o.course(last.P).ByExits
	var d *detour.Detour
	var err error
	switch {
	case w.Alone && !last.Alone:
		ps, n := o.probesOf(ws), ownHits(ws)
		d, err = detour.BuildReturns(uint64(st.Base), params, ps[:n], ps[n:], x.Calls(), tail)
	case w.Alone:
		d, err = detour.BuildExit(uint64(st.Base), params, o.probesOf(ws), nil, tail)
	case w.Open() != nil:
		d, err = detour.BuildOnward(uint64(st.Base), params, x.Calls(), w.Open(), x.PassesTo(ws), tail)
	case w.Notes:
		noting := slices.DeleteFunc(slices.Clone(ws), func(w Request) bool { return !w.Notes })
		calls := x.Calls()
		calls.Joined = len(noting) < len(ws) || o.takes(noting)
		d, err = detour.BuildJump(uint64(st.Base), params, o.probesOf(noting), calls, asm.Cond(w.Inst().Opcode&15), !w.Conditional, tail)
	case w.Passing != detour.NotPassing:
		params.FlagsDead = o.flagsDead(ws)
		d, err = detour.BuildPassing(uint64(st.Base), params, x.Calls(), w.Passing, asm.Cond(w.Inst().Opcode&15), !w.Conditional, tail)
	case x.Calls().Common:
		d, err = detour.BuildLeaves(uint64(st.Base), params, o.probesOf(ws), x.Calls(), w.Pop, tail)
	default:
		d, err = detour.BuildLeave(uint64(st.Base), params, o.probesOf(ws)[0], x.Calls(), w.Pop, tail)
	}
	if err != nil {
		return nil, err
	}
	st.keep(d, len(ws))
	st.exits, st.leaves = x, true
	return d.Code, nil
}
