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

// ExitWay is the Way of a return probe by exits.
type ExitWay struct {
	Probe *Probe
	Exits []Request
	table *callTable // nil: it has none yet, or needs none
	// Open names a jump of the probe's own function through a register or memory, with the reason why it is one; "":
	// there is none.
	Open string
	// Anywhere says that any return that looks into the common table may end one of its calls.
	Anywhere bool
	// own says that the function's only exits are its own return instructions. plain says that it
	// has only these and jumps to other functions (exits.Exits). Alone says that each of its own
	// returns is a hit by itself, and the entry isn't patched (alonereturns.go).
	own, plain, Alone bool
	// StartsOver says that the function jumps to its own entry. So its entry can't tell whether calls that were noted
	// elsewhere have come with this call, or were left by an exception before.
	StartsOver bool
	// taken says that it is Alone, although any code may jump to the function: its entry and its own returns look
	// for calls that arrive.
	taken bool
	back  bool          // exits.Exits.Back
	found int           // how many of Exits were found; those behind are for taken
	entry *assess.Place // the function's
}

// newExitWay makes a way with room for so many exits, of one piece of memory if there are few.
func newExitWay(exits int) *ExitWay {
	switch exits {
	case 1:
		x := &struct {
			ExitWay
			exits [1]Request
		}{}
		x.Exits = x.exits[:0]
		return &x.ExitWay
	case 2:
		x := &struct {
			ExitWay
			exits [2]Request
		}{}
		x.Exits = x.exits[:0]
		return &x.ExitWay
	}
	return &ExitWay{Exits: make([]Request, 0, exits)}
}

// callTable is a table of calls, of one way or of all in common. Once it has its place it isn't changed.
type callTable struct {
	calls detour.Calls
	// noting is the set of functions that note their calls there, or look for calls that arrive; it is nil unless a
	// function of the table ends in a jump through a register or memory. landings are return addresses with landings;
	// nil where noting is.
	noting, landings *detour.Noting
	few              bool // see Followed
}

// Calls is the table in which calls are noted. It is zero for a way that has none.
func (l *ExitWay) Calls() detour.Calls {
	if l.table == nil {
		return detour.Calls{}
	}
	return l.table.calls
}

// Noting is the set of functions that note their calls in the table, or look there for calls that arrive; nil unless one
// of them ends in a jump through a register or memory.
func (l *ExitWay) Noting() *detour.Noting {
	if l.table == nil {
		return nil
	}
	return l.table.noting
}

// Landings are the return addresses with landings; nil where Noting is.
func (l *ExitWay) Landings() *detour.Noting {
	if l.table == nil {
		return nil
	}
	return l.table.landings
}

// Followed says that breakpoints follow a call that jumps to unknown code and can't be seen where it returns to, as
// they do if a probe is no jump. If many probes note their calls in the table, such a call is missed.
func (l *ExitWay) Followed() bool { return l.table != nil && l.table.few }

// leavable is the reason why a function whose calls can't return by return trampolines can't be probed at
// its exits either; "" if it may be.
func leavable(w Request) string {
	if w.P.GoABI || w.Site.Module.File.IsGo() {
		return "Go's stacks move"
	}
	if strings.HasPrefix(w.Site.Module.Name, "ld-") {
		return "the loader's functions are entered in ways of their own"
	}
	return exits.Patchable(w.Site.Func.Symbol.Name)
}

// fewExits is the number of returns up to which a probe uses exits although it could use return
// trampolines. A call costs less with exits, but each patch takes memory and time. If there are many
// probes, more use exits (mayShare).
const fewExits = 4

func (l *ExitWay) Of() *Probe         { return l.Probe }
func (l *ExitWay) Memory() CallMemory { return l.Calls() }
func (l *ExitWay) At() uint64         { return l.Calls().Addr }

func (l *ExitWay) Blank(s *detour.Shared) []byte { return l.Calls().Head(s) }
func (l *ExitWay) Outlives() bool                { return false }

func (l *ExitWay) Owns(mem []byte, number int, p *Probe) bool {
	return l.Calls().Owner(mem, number, p.Id)
}

func (l *ExitWay) buildEntry(o *planner, st *Stage, ws []Request, tail tailFunc) ([]byte, error) {
	return o.enterStage(st, ws, tail)
}

// PassesTo is what is known of where calls of a stage's probes go by a jump through a register or
// memory. It is zero, and no calls pass on, if one of the probes does more than count.
func (l *ExitWay) PassesTo(ws []Request) detour.Onward {
	if slices.ContainsFunc(ws, func(w Request) bool { return !w.P.Anywhere }) {
		return detour.Onward{}
	}
	return detour.Onward{To: l.Noting(), Back: l.Landings()}
}

// mayShare reports whether a return probe, one of many, whose function jumps on to others uses exits because these let it
// follow more calls at a time: the common table has room for far more than a pool of its own, and rows that no call has ever had take no memory. The
// functions that it jumps to are mostly probed too, so few patches are for it alone.
func (o *planner) mayShare(p *Probe, l *ExitWay) bool {
	return o.manyFree && l.plain && !l.own && !p.Limited && detour.CanBeCommon(p.Program)
}

// places is the number of places that are patched for the probe.
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

// GiveUpExits makes the probe a breakpoint. The next plan may choose another way, except for a Go
// function: there breakpoints follow active calls, which a change back would lose.
func (c *Course) GiveUpExits(goABI bool) {
	c.ByExits, c.Analysed, c.Tactic = nil, goABI, plan.Breakpoint
	if goABI {
		if c.Trapped = c.Why; c.Trapped == "" {
			c.Trapped = "a jump at its entry or at one of its exits could not be placed"
		}
	}
}

// maxShared is the largest number of tables that one return may look into. maxOwners is the largest
// number of probes of common tables whose calls one return may have to distinguish.
const (
	maxShared = 16
	maxOwners = 1024
)

// addExits adds the exits of a batch's return probes to the functions' requests. A probe with an exit
// that can't be a jump doesn't use exits. The requests that become breakpoints then are added to rest.
func (o *planner) addExits(ws []Request, groups map[*assess.Function][]Request, rest []Request) []Request {
	sharing, trapped, hides := map[symbols.Addr]sharers{}, o.trapped(rest), o.hidesSlots(ws)
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
		if x.Open != "" && !x.Calls().Common {
			failed[w.P], o.course(w.P).Why = true, x.Open
		}
		for _, e := range x.Exits {
			if o.occupied(e.Site.Addr) || trapped[e.Site.Addr] {
				failed[w.P], o.course(w.P).Why = true, "a breakpoint is at one of its exits, "+e.Site.Name()
			} else if !e.Alone && !sharing[e.Site.Addr].fits(x, e) {
				failed[w.P], o.course(w.P).Why = true, "too many functions return by "+e.Site.Name()
			} else if e.Passing == detour.Arrives && hides[e.Site.Addr] {
				failed[w.P], o.course(w.P).Why = true, whyHidden(e)
			}
		}
		if failed[w.P] {
			continue
		}
		for _, e := range x.Exits {
			if !e.Alone { // else it looks into no table for the probe
				sharing[e.Site.Addr] = sharing[e.Site.Addr].with(x, e)
			}
			// If a function is missing here, the probe lacks a patch, and allOrNone gives it up.
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

// hidesSlots are the entries of functions whose calls return by return trampolines: what a slot held before isn't
// found there any more. So no other function's calls may be looked up at their returns.
func (o *planner) hidesSlots(ws []Request) map[symbols.Addr]bool {
	at := map[symbols.Addr]bool{}
	for _, w := range ws {
		if w.Kind == Return && o.followReturn(w) == "" && o.course(w.P).ByExits == nil {
			at[w.Site.Addr] = true
		}
	}
	return at
}

// whyHidden is the reason why calls that pass on to a function can't be seen where that returns.
func whyHidden(e Request) string {
	return "it jumps to " + e.Site.Name() + ", whose calls return by return trampolines"
}

// sharers says whose calls one return looks for.
type sharers struct {
	table  uint64   // address of the first table; 0: there is none
	others []uint64 // addresses of more tables: few returns have them
	owners int      // number of probes of common tables that it must distinguish
}

func (s sharers) fits(x *ExitWay, e Request) bool {
	if x.tells(e) && s.owners >= maxOwners {
		return false
	}
	return len(s.others) < maxShared-1 || s.has(x.Calls().Addr)
}

func (s sharers) has(table uint64) bool { return s.table == table || slices.Contains(s.others, table) }

func (s sharers) with(x *ExitWay, e Request) sharers {
	switch at := x.Calls().Addr; {
	case s.table == 0:
		s.table = at
	case !s.has(at):
		s.others = append(s.others, at)
	}
	if x.tells(e) {
		s.owners++
	}
	return s
}

// tells reports whether a return must distinguish the probe's calls from others in the common table.
func (l *ExitWay) tells(e Request) bool {
	return l.Calls().Common && !l.Anywhere && e.Passing == detour.NotPassing
}
