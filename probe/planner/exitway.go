package planner

import (
	"maps"
	"slices"
	"strings"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// How a return is seen where the function returns
//
// If return addresses are read (unwinders, dlsym), or would outlive kprobe (shadow stacks), no
// return trampoline may stand in a slot. Then the function is also patched where it returns; so
// it is elsewhere, if that costs less. The entry's detour notes the call by its slot. The
// return's detour finds it there, records it and forgets it (detour.Calls). A call that is left
// by an exception or longjmp is no return, and is noticed when its place is needed.
//
// A function that ends in a jump to another one returns by that one's returns. These are
// patched as well, and those of the functions that it jumps to in turn. When others call those
// functions, their returns don't find a call, and just return (probe/exits). If many functions
// are probed, hundreds may return by the same instruction, so they have one common table of
// calls (detour/common.go).
//
// A call that an exception or longjmp has left must not be mistaken for a later call of such a
// function, although return address and slot may be the same. So the jumps are patched, which
// mark the call's row as passing on, and those functions' entries, which free the row of a call
// that isn't marked (detour.Passing).
//
// All of these instructions must be known, and each must take a jump. Otherwise the calls go by
// return trampolines or, where none may stand, by breakpoints (probe/engine,
// returnbreakpoint.go).
//
// Functions of Go's compiler go this way, too. The differences are in gocode.go.
//
// The patches of one probe are armed in one stop. When another probe is placed under one of
// them, all are planned again with it (probe/engine, change.go), over the same table: the new
// code finds active calls as the old did. A patch may have to give way at once, to a return
// address or a fault. Then the entry's patch becomes a breakpoint, which follows calls as
// breakpoints do, while the exits stay for calls that are active. An exit's patch becomes a
// breakpoint that leads into the exit's detour, so that nothing changes but the cost.

// ExitWay is a return probe of exits.
type ExitWay struct {
	Probe *Probe
	Exits []Request
	Calls detour.Calls
	// Anywhere says that any return which looks into the table in common may be one of its
	// calls'. Noting is set where one of that table's functions ends in a jump of which
	// only the program knows where it leads; Open says which jump, and why.
	Anywhere bool
	Noting   *detour.Noting
	Open     string
	// own says that the function's own return instructions are all of its exits, plain that
	// these and jumps to other functions are (exits.Exits). Alone says that each of its
	// own is a hit by itself, and the entry isn't patched (alonereturns.go).
	own, plain, Alone bool
}

// leavable says why a function whose calls can't return by return trampolines can't be
// probed at its exits either; "" if it may be.
func leavable(w Request) string {
	if w.P.GoABI || w.Site.Module.File.IsGo() {
		return "Go's stacks move"
	}
	if strings.HasPrefix(w.Site.Module.Name, "ld-") {
		return "the loader's functions are entered in ways of their own"
	}
	return exits.Patchable(w.Site.Func.Symbol.Name)
}

// fewExits is up to how many returns a function is probed at them though it could
// go by return trampolines: a call costs less so, and each patch takes memory and time.
const fewExits = 4

func (l *ExitWay) Of() *Probe         { return l.Probe }
func (l *ExitWay) Memory() CallMemory { return l.Calls }
func (l *ExitWay) At() uint64         { return l.Calls.Addr }

func (l *ExitWay) Blank(s *detour.Shared) []byte { return l.Calls.Head(s) }
func (l *ExitWay) Outlives() bool                { return false }

func (l *ExitWay) Owns(mem []byte, number int, p *Probe) bool {
	return l.Calls.Owner(mem, number, p.Id)
}

func (l *ExitWay) buildEntry(o *planner, st *Stage, ws []Request, tail tailFunc) ([]byte, error) {
	return o.enterStage(st, ws, tail)
}

// PassesTo is the set of functions to which calls of a stage's probes pass on by a jump that
// only the program knows; nil: none do, as more than the number of the calls is wanted.
func (l *ExitWay) PassesTo(ws []Request) *detour.Noting {
	if slices.ContainsFunc(ws, func(w Request) bool { return !w.P.Anywhere }) {
		return nil
	}
	return l.Noting
}

// places is how many places are patched for the probe.
func (l *ExitWay) places() int {
	if l.Alone {
		return len(l.Exits)
	}
	return len(l.Exits) + 1
}

// cheap reports whether the returns are few and the function's own.
func (l *ExitWay) cheap(w symbols.Site) bool {
	return len(l.Exits) <= fewExits && l.Open == "" &&
		!slices.ContainsFunc(l.Exits, func(e Request) bool { return !e.Within(w) })
}

// GiveUpExits makes the probe a breakpoint; when it is planned again it is judged
// anew. One of a Go function stays what it is: the calls that are under way are
// followed so.
func (c *Course) GiveUpExits(goABI bool) {
	c.ByExits, c.Analysed, c.Tactic = nil, goABI, plan.Breakpoint
	if goABI {
		if c.Trapped = c.Why; c.Trapped == "" {
			c.Trapped = "a jump at its entry or at one of its exits could not be placed"
		}
	}
}

// maxShared is how many tables of calls may be looked into at one return, maxOwners
// how many probes may have their calls there in one table.
const (
	maxShared = 16
	maxOwners = 1024
)

// addExits adds the exits of a batch's return probes to the functions that are
// to be planned. A probe of which one can't be a jump isn't one of exits: what then
// stands for breakpoints is added to rest.
func (o *planner) addExits(ws []Request, groups map[*assess.Function][]Request, rest []Request) []Request {
	sharing, trapped := map[symbols.Addr]*sharers{}, o.trapped(rest)
	failed := map[*Probe]bool{}
	for _, w := range ws {
		if w.Kind != Return || o.course(w.P).ByExits == nil {
			continue
		}
		f, err := o.ground.Code.Leaving(w.Site)
		if err != nil || !slices.ContainsFunc(groups[f], func(x Request) bool { return x.P == w.P }) {
			o.course(w.P).GiveUpExits(w.P.GoABI) // its entry is a breakpoint
			continue
		}
		x := o.course(w.P).ByExits
		if x.Open != "" && !x.Calls.Common {
			failed[w.P], o.course(w.P).Why = true, x.Open
		}
		for _, e := range x.Exits {
			if o.occupied(e.Site.Addr) || trapped[e.Site.Addr] {
				failed[w.P], o.course(w.P).Why = true, "a breakpoint is at one of its exits, "+e.Site.Name
			} else if !sharing[e.Site.Addr].fits(x, e) {
				failed[w.P], o.course(w.P).Why = true, "too many functions return by "+e.Site.Name
			}
		}
		if failed[w.P] {
			continue
		}
		for _, e := range x.Exits {
			if sharing[e.Site.Addr] == nil {
				sharing[e.Site.Addr] = &sharers{}
			}
			sharing[e.Site.Addr].add(x, e)
			// Without one of its patches the probe is given up (whole).
			if g, err := o.ground.Code.Leaving(e.Site); err == nil {
				groups[g] = append(groups[g], e)
			}
		}
	}
	if len(failed) == 0 {
		return rest
	}
	given, _ := o.giveUpExits(failed, slices.Collect(maps.Keys(groups)), groups)
	return append(rest, given...)
}

// sharers are the calls that are looked for at one return.
type sharers struct {
	tables []uint64
	owners int // of tables in common
}

func (s *sharers) fits(x *ExitWay, e Request) bool {
	switch {
	case s == nil:
		return true
	case x.tells(e) && s.owners >= maxOwners:
		return false
	}
	return len(s.tables) < maxShared || slices.Contains(s.tables, x.Calls.Addr)
}

func (s *sharers) add(x *ExitWay, e Request) {
	if !slices.Contains(s.tables, x.Calls.Addr) {
		s.tables = append(s.tables, x.Calls.Addr)
	}
	if x.tells(e) {
		s.owners++
	}
}

// tells reports whether a return must tell the probe's calls from others of the table in
// common.
func (l *ExitWay) tells(e Request) bool {
	return l.Calls.Common && !l.Anywhere && e.Passing == detour.NotPassing
}
