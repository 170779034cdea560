package assess

import (
	"debug/elf"
	"errors"
	"sync"

	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/results"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// Judge says how instructions would be probed. It is safe for concurrent use.
type Judge struct {
	space   *symbols.Space
	modules map[*symbols.Module]*surveyed
	golang  Programs
}

// surveyed is a module with what judging needs to know about it.
type surveyed struct {
	module *symbols.Module // where it is taken to lie
	shift  uint64          // so much higher than its Space has it
	gaps   plan.Gaps
	around survey.Around
}

// fileShift is where a position-independent file that nobody has loaded is
// taken to lie: with 2 GiB free on either side.
const fileShift = 1 << 40

// judgedRoom is what a detour with a few arguments takes, in bytes.
const judgedRoom = 512

// NewJudge is the judge of what is in the modules of places.
func NewJudge(space *symbols.Space, places []symbols.Site) (*Judge, error) {
	j := &Judge{space: space, modules: map[*symbols.Module]*surveyed{}}
	var maps []symbols.Mapping
	if pid := space.PID(); pid != 0 {
		var err error
		if maps, err = symbols.ReadMaps(pid); err != nil {
			return nil, err
		}
	}
	for _, w := range places {
		if w.Module == nil || w.Module.File == nil || j.modules[w.Module] != nil {
			continue
		}
		j.modules[w.Module] = surroundings(w.Module, maps)
	}
	return j, nil
}

// surroundings finds the free addresses around a module; maps is nil for a file
// alone.
func surroundings(m *symbols.Module, maps []symbols.Mapping) *surveyed {
	s := &surveyed{}
	moved := *m
	if len(maps) == 0 && m.File.Type != elf.ET_EXEC {
		s.shift = fileShift
		moved.Bias += fileShift
	}
	s.module = &moved
	lo, hi := uint64(1<<63), uint64(0)
	for _, r := range m.Maps {
		lo, hi = min(lo, uint64(r.Start)+s.shift), max(hi, uint64(r.End)+s.shift)
	}
	if len(maps) == 0 {
		last := hi
		if s.shift == 0 {
			last += memory.HeapRoom
		}
		s.gaps = plan.Gaps{{Lo: memory.Lowest, Hi: max(lo, memory.Lowest) &^ (memory.PageSize - 1)}, {Lo: (last + memory.PageSize - 1) &^ (memory.PageSize - 1), Hi: memory.Highest}}
		return s
	}
	for _, g := range memory.FreeRanges(maps) {
		if g.Hi+memory.Reach > lo && g.Lo < hi+memory.Reach {
			s.gaps = append(s.gaps, g)
		}
	}
	return s
}

// analysed is a function as the planner sees it.
type analysed struct {
	*Function
	shift uint64
	reach plan.Reach
	code  *plan.Func
	wide  func() *plan.Func // with its neighbours; nil: there are none
	never string            // why no probe of it can be a jump
	kept  []plan.Range      // what no jump may cover
	rule  *Assessor
	at    symbols.Site // a place of it
}

// site is one of its instructions.
func (f *analysed) site(at uint64) symbols.Site {
	w := f.at
	w.Addr, w.Offset = symbols.Addr(at), at-uint64(f.Start)
	w.Vaddr = w.Func.Start + symbols.Vaddr(w.Offset)
	return w
}

// take takes the function of a site apart.
func (j *Judge) take(w symbols.Site) (*analysed, error) {
	s := j.modules[w.Module]
	w.Module = s.module
	w.Addr += symbols.Addr(s.shift)
	f, err := Decode(w.Module.File, w.Func, survey.Start(w))
	if err != nil {
		return nil, err
	}
	out := &analysed{Function: f, shift: s.shift, at: w, rule: &Assessor{Function: decoded, Golang: &j.golang}, reach: s.gaps, never: NeverJump(w), kept: survey.Sequences(w.Module, w.Func)}
	out.wide = sync.OnceValue(func() *plan.Func { return s.around.Wide(f.Sweep, f.Fn, w.Module) })
	text, known := f.Code, plan.Known{}
	if w.Module.File.IsGo() {
		f.GoCode(j.golang.Of(w.Module.File))
	}
	if out.never == "" {
		text, known = s.around.Of(f.Code, f.Fn, w.Module)
	}
	out.code = plan.FromSweep(f.Sweep, text, known)
	return out, nil
}

// NeverJump says why no probe at a site can be a jump, whatever its
// instruction is; "" if one may be.
func NeverJump(w symbols.Site) string {
	if w.Func.End <= w.Func.Start {
		return "its function's size is not known"
	}
	return ""
}

// judge says how the instruction of a line, which the planner knows at an
// address, would be probed.
func (f *analysed) judge(l *results.Line, at uint64) {
	var refused *survey.RefusedError
	if _, err := f.rule.Start(f.site(at)); errors.As(err, &refused) {
		l.Probe, l.Why = results.KindRefused, refused.Rule
		return
	}
	never := f.never
	if f.golang != nil && never == "" {
		off := at - uint64(f.Start)
		if off == 0 {
			off = f.golang.Entry()
			at += off
		}
		_, never = f.golang.Stack(off)
	}
	site := plan.Site{Addr: at, Room: judgedRoom, Trap: never != ""}
	plans, err := plan.Plan(f.code, []plan.Site{site}, f.reach, f.kept)
	if err != nil {
		l.Probe, l.Why = results.KindRefused, err.Error()
		return
	}
	p := plans[0]
	if p.Tactic == plan.Breakpoint && never == "" {
		if wide := f.wide(); wide != nil {
			if again, err := plan.Plan(wide, []plan.Site{site}, f.reach, f.kept); err == nil {
				p = again[0]
			}
		}
	}
	l.Tactic, l.Why = p.Tactic, p.Why
	switch p.Tactic {
	case plan.Refused:
		l.Probe = results.KindRefused
	case plan.Breakpoint:
		l.Probe = results.KindBoosted
		if never != "" {
			l.Why = never
		}
	case plan.Window:
		l.Probe = results.KindGuarded
	case plan.ShortJump:
		l.Probe = results.KindShortJump
	default:
		l.Probe = results.KindJump
	}
}
