package planner

import (
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

// tailFunc emits what a stage ends in.
type tailFunc = func(c *asm.Code) error

// build makes the detours of a plan, to lie where the plan says.
func (o *planner) build(p *plan.Patch, byAddr map[uint64][]Request) (*Patch, error) {
	out := &Patch{Plan: p}
	if !p.Tactic.Jump() {
		return out, nil
	}
	if p.Island != nil {
		island, err := o.build(p.Island, byAddr)
		if err != nil {
			return nil, err
		}
		out.Island = island
	}
	// Where the stages start: at each site, and at the first byte if there
	// is none.
	type start struct {
		at    uint64
		sites []Request
	}
	starts := []start{{at: p.At}}
	for _, a := range p.Sites {
		pos := max(a, p.At)
		if last := &starts[len(starts)-1]; last.at == pos {
			last.sites = append(last.sites, byAddr[a]...)
		} else {
			starts = append(starts, start{pos, byAddr[a]})
		}
	}
	for i := len(starts) - 1; i >= 0; i-- {
		var parts []start
		for _, ws := range o.apart(starts[i].sites) {
			parts = append(parts, start{starts[i].at, ws})
		}
		starts = slices.Replace(starts, i, i+1, parts...)
	}
	base := p.Detour
	end := p.Detour + uint64(p.Room)
	for i, s := range starts {
		from := s.at - p.At
		code := p.Displaced[from:]
		opts := insn.Options{}
		if i+1 < len(starts) {
			code = p.Displaced[from : starts[i+1].at-p.At]
			opts.NoJumpBack = true
		}
		st := &Stage{Base: symbols.Addr(base), At: symbols.Addr(s.at)}
		var next uint64
		if i+1 < len(starts) {
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
		st.Size = len(text)
		if base+uint64(len(text)) > end {
			return nil, errRoom
		}
		o.keepText(st, text)
		out.Stages = append(out.Stages, st)
		base = (base + uint64(len(text)) + 15) &^ 15
	}
	return out, nil
}

// stage builds one stage at its base. next, if not 0, is the base of the
// following stage: this one's copies end in a jump there.
func (o *planner) stage(st *Stage, ws []Request, code []byte, opts insn.Options, next uint64) ([]byte, error) {
	tail := func(c *asm.Code) error {
		st.CopyAt = symbols.Addr(c.Here())
		st.Code, st.Copied = nil, 0
		if len(code) == 0 {
			c.JmpAddr(next)
			return nil
		}
		m, err := insn.RelocateWindow(code, uint64(st.At), c.Here(), opts)
		if err != nil {
			return err
		}
		st.Code, st.Copied, st.open = code, len(m.Code), opts.NoJumpBack
		c.Raw(m.Code...)
		if next != 0 {
			st.Onward = st.At + symbols.Addr(len(code))
			c.JmpAddr(next)
		}
		return nil
	}
	if len(ws) == 0 {
		c := asm.New(uint64(st.Base))
		if err := tail(c); err != nil {
			return nil, err
		}
		return c.Bytes()
	}
	st.sketch = o.sketches[keyOf(ws)]
	return o.probes(st, ws, tail)
}

// probes builds the stage of probes that are not apart.
func (o *planner) probes(st *Stage, ws []Request, tail tailFunc) ([]byte, error) {
	switch last := ws[len(ws)-1]; {
	case last.Kind == Exit:
		return o.leaveStage(st, ws, tail)
	case last.Kind == Return:
		return o.course(last.P).Way().buildEntry(o, st, ws, tail)
	}
	params := o.goParams(ws[0])
	params.Sketch = st.sketch
	var d *detour.Detour
	var err error
	if ws[0].Kind == LoneExit {
		d, err = detour.BuildExit(uint64(st.Base), &params, o.probesOf(ws), nil, tail)
	} else {
		d, err = detour.Build(uint64(st.Base), &params, o.probesOf(ws), tail)
	}
	if err != nil {
		return nil, err
	}
	st.Detour, st.Wants = d, ws
	return d.Code, nil
}

func (o *planner) probesOf(ws []Request) []detour.Probe {
	out := make([]detour.Probe, 0, len(ws))
	for _, w := range ws {
		by := o.course(w.P).ByExits
		p := detour.Probe{
			ID: w.P.Id, Program: w.P.Program, CountOnly: w.P.Silent, IP: uint64(w.P.Where.Addr),
			Anywhere: by != nil && by.Anywhere, Birth: w.P.Birth,
		}
		if x := w.P.Besides; x != nil {
			p.Inject, p.Control, p.Bins = x.Inject, x.Control, x.Bins
		}
		out = append(out, p)
	}
	return out
}

// noted reports whether the calls of a function are noted in a table in common where its
// entry's probes are: then nothing else is to be done for those that arrive there.
func (o *planner) noted(ws []Request, table uint64) bool {
	return slices.ContainsFunc(ws, func(w Request) bool {
		by := o.course(w.P).ByExits
		return w.Kind == Return && by != nil && by.Calls.Common && by.Calls.Addr == table
	})
}

// sameTable reports whether the calls of two return probes are in one table.
func (o *planner) sameTable(a, b Request) bool {
	x, y := o.course(a.P).ByExits, o.course(b.P).ByExits
	return x != nil && y != nil && x.Calls.Common && x.Calls.Addr == y.Calls.Addr
}

// apart divides the probes of one address into those that share a stage: the
// entry probes, with the first return probe if that is one of exits; those that an
// exit is a hit of by itself, each return probe, those exits of others that have a
// table in common, and each other exit. There is at least one part.
func (o *planner) apart(ws []Request) [][]Request {
	var entries, leaves []Request
	var out [][]Request
	type way struct {
		table   uint64
		passing detour.Passing
	}
	tables := map[way]int{}
	var noted map[uint64]bool // by table
	for _, w := range ws {
		switch {
		case w.Kind == Entry:
			entries = append(entries, w)
		case w.Kind == LoneExit || w.Kind == Exit && w.Alone:
			leaves = append(leaves, w)
		case w.Kind == Exit && o.course(w.P).ByExits.Calls.Common:
			at := way{o.course(w.P).ByExits.Calls.Addr, w.Passing}
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
					continue
				}
			}
			n, ok := tables[at]
			if !ok {
				n, tables[at], out = len(out), len(out), append(out, nil)
			}
			out[n] = append(out[n], w)
			if w.Within(*w.P.Where) {
				out[n][0], out[n][len(out[n])-1] = w, out[n][0] // who returns here most, or jumps
			}
		case w.Kind == Return:
			w.Joins = slices.ContainsFunc(out, func(before []Request) bool {
				return before[0].Kind == Return && o.sameTable(before[0], w)
			})
			out = append(out, []Request{w})
		default:
			out = append(out, []Request{w})
		}
	}
	if len(leaves) > 0 {
		out = append([][]Request{leaves}, out...)
	}
	switch {
	case len(entries) > 0 && len(out) > 0 && out[0][0].Kind == Return && o.course(out[0][0].P).ByExits != nil:
		out[0] = append(entries, out[0]...)
	case len(entries) > 0 || len(out) == 0:
		out = append([][]Request{entries}, out...)
	}
	return out
}

// enterStage and leaveStage build the code of the two sides as stages. The last
// of ws is the return probe, the others are entry probes.
func (o *planner) enterStage(st *Stage, ws []Request, tail tailFunc) ([]byte, error) {
	last := ws[len(ws)-1]
	ps, x, params := o.probesOf(ws), o.course(last.P).ByExits, o.goParams(last)
	params.Sketch = st.sketch
	calls := x.Calls
	calls.Joined = last.Joins
	d, err := detour.BuildEnter(uint64(st.Base), &params, ps[:len(ps)-1], ps[len(ps)-1], calls, tail)
	if err != nil {
		return nil, err
	}
	st.Detour, st.Way, st.Wants = d, x, ws
	return d.Code, nil
}

func (o *planner) leaveStage(st *Stage, ws []Request, tail tailFunc) ([]byte, error) {
	w := ws[0]
	params, x := o.goParams(w), o.course(w.P).ByExits
	params.Sketch = st.sketch
	var d *detour.Detour
	var err error
	switch {
	case w.Alone:
		d, err = detour.BuildExit(uint64(st.Base), &params, o.probesOf(ws), nil, tail)
	case w.Open != nil:
		d, err = detour.BuildOnward(uint64(st.Base), &params, x.Calls, w.Open, x.PassesTo(ws), tail)
	case w.Notes:
		noting := slices.DeleteFunc(slices.Clone(ws), func(w Request) bool { return !w.Notes })
		calls := x.Calls
		calls.Joined = len(noting) < len(ws) // others' calls come here
		d, err = detour.BuildJump(uint64(st.Base), &params, o.probesOf(noting), calls, asm.Cond(w.Inst.Opcode&15), !w.Conditional, tail)
	case w.Passing != detour.NotPassing:
		d, err = detour.BuildPassing(uint64(st.Base), &params, x.Calls, w.Passing, asm.Cond(w.Inst.Opcode&15), !w.Conditional, tail)
	case x.Calls.Common:
		d, err = detour.BuildLeaves(uint64(st.Base), &params, o.probesOf(ws), x.Calls, w.Pop, tail)
	default:
		d, err = detour.BuildLeave(uint64(st.Base), &params, o.probesOf(ws)[0], x.Calls, w.Pop, tail)
	}
	if err != nil {
		return nil, err
	}
	st.Detour, st.Way, st.Leaves, st.Wants = d, x, true, ws
	return d.Code, nil
}
