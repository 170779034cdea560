package engine

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
	"kprobe/probe/plan"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a return is seen where the function returns
//
// Where return addresses are read (unwinders, dlsym), or would outlive kprobe
// (shadow stacks), no return trampoline may stand in a slot. There the function is
// patched where it returns, too; and elsewhere, if that costs less. The entry's
// detour notes the call by its slot, the return's finds it there, records it and
// forgets it (detour.Calls). What leaves otherwise, by an exception or longjmp,
// is no return, and is found out when its place is needed.
//
// A function that ends in a jump to another returns by that one's returns: they
// are patched as well, and those of the functions that it jumps to in turn.
// Called by others they don't find the call, and just return (probe/exits). Where many
// functions are probed hundreds may return by the same instruction: they have one table
// of calls in common (detour/common.go). A call that
// an exception or longjmp has left is not taken for a later one of such a function
// either, though return address and slot may be the same: the jumps are patched,
// which say in the call's row that it passes on, and those functions' entries, which
// free the row of a call that doesn't (detour.Passing).
//
// All of these instructions must be known, and each must take a jump; else the calls
// go by return trampolines or, where none may stand, by breakpoints (returnbreakpoint.go).
//
// Functions of Go's compiler go this way, too; what is different is in gocalls.go.
//
// The patches of one probe are armed in one stop. When another probe comes to
// stand under one of them, all are planned anew with it (change.go), over the
// same table: calls that are under way are found by the new as by the old. Where
// one must give way at once, to a return address or a fault, the entry's becomes
// a breakpoint whose calls are followed as of a breakpoint, while the exits stay
// for those that are under way; an exit's becomes a breakpoint that leads into
// the exit's detour, so that nothing changes but the cost.

// ExitProbe is a return probe of exits.
type ExitProbe struct {
	noted
	Exits []PatchRequest
	Calls detour.Calls
	// anywhere says that any return which looks into the table in common may be one of its
	// calls'. noting is set where one of that table's functions ends in a jump of which
	// only the program knows where it leads; open says which jump, and why.
	anywhere bool
	noting   *detour.Noting
	open     string
	// own says that the function's own return instructions are all of its exits, plain that
	// these and jumps to other functions are (exits.Exits). alone says that each of its
	// own is a hit by itself, and the entry isn't patched (alonereturns.go).
	own, plain, Alone bool
}

// leavable says why a function whose calls can't return by return trampolines can't be
// probed at its exits either; "" if it may be.
func leavable(w PatchRequest) string {
	if w.P.goABI || w.Site.Module.File.IsGo() {
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

func (l *ExitProbe) Memory() callMemory            { return l.Calls }
func (l *ExitProbe) At() uint64                    { return l.Calls.Addr }
func (l *ExitProbe) blank(s *detour.Shared) []byte { return l.Calls.Head(s) }
func (l *ExitProbe) inUse() bool                   { return true }
func (l *ExitProbe) outlives() bool                { return false }

func (l *ExitProbe) owns(mem []byte, number int, p *Placed) bool {
	return l.Calls.Owner(mem, number, p.Id)
}

func (l *ExitProbe) buildEntry(o *planner, st *stage, ws []PatchRequest, tail tailFunc) ([]byte, error) {
	return o.enterStage(st, ws, tail)
}

func (l *ExitProbe) leave(st *stage, regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	return st.leaveDetour(regs, mem)
}

func (l *ExitProbe) rollBack(tg *Target, at faulting) (v tracee.Verdict, done bool) {
	return tg.detourRolledBack(at)
}

// places is how many places are patched for the probe.
func (l *ExitProbe) places() int {
	if l.Alone {
		return len(l.Exits)
	}
	return len(l.Exits) + 1
}

// cheap reports whether the returns are few and the function's own.
func (l *ExitProbe) cheap(w symbols.Site) bool {
	return len(l.Exits) <= fewExits && l.open == "" &&
		!slices.ContainsFunc(l.Exits, func(e PatchRequest) bool { return !e.within(w) })
}

// giveUpExits makes the probe a breakpoint; when it is planned again it is judged
// anew. One of a Go function stays what it is: the calls that are under way are
// followed so.
func (c *course) giveUpExits(goABI bool) {
	c.ByExits, c.analysed, c.Tactic = nil, goABI, plan.Breakpoint
	if goABI {
		if c.trapped = c.Why; c.trapped == "" {
			c.trapped = "a jump at its entry or at one of its exits could not be placed"
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
func (o *planner) addExits(ws []PatchRequest, groups map[*assess.Function][]PatchRequest, rest []PatchRequest) []PatchRequest {
	sharing, trapped := map[symbols.Addr]*sharers{}, o.trapped(rest)
	failed := map[*Placed]bool{}
	for _, w := range ws {
		if w.Kind != requestReturn || o.course(w.P).ByExits == nil {
			continue
		}
		f, err := o.ground.code.leaving(w.Site)
		if err != nil || !slices.ContainsFunc(groups[f], func(x PatchRequest) bool { return x.P == w.P }) {
			o.course(w.P).giveUpExits(w.P.goABI) // its entry is a breakpoint
			continue
		}
		x := o.course(w.P).ByExits
		if x.open != "" && !x.Calls.Common {
			failed[w.P], o.course(w.P).Why = true, x.open
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
			if g, err := o.ground.code.leaving(e.Site); err == nil {
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

func (s *sharers) fits(x *ExitProbe, e PatchRequest) bool {
	switch {
	case s == nil:
		return true
	case x.tells(e) && s.owners >= maxOwners:
		return false
	}
	return len(s.tables) < maxShared || slices.Contains(s.tables, x.Calls.Addr)
}

func (s *sharers) add(x *ExitProbe, e PatchRequest) {
	if !slices.Contains(s.tables, x.Calls.Addr) {
		s.tables = append(s.tables, x.Calls.Addr)
	}
	if x.tells(e) {
		s.owners++
	}
}

// tells reports whether a return must tell the probe's calls from others of the table in
// common.
func (l *ExitProbe) tells(e PatchRequest) bool {
	return l.Calls.Common && !l.anywhere && e.passing == detour.NotPassing
}

// abandoned reports whether a call's thread is gone, or the program has used its slot
// anew, so that it can't come to an exit.
func (l *ExitProbe) abandoned(tg *Target, in detour.Instance, sps []uint64) bool {
	return !tg.UnderWay(l, in, sps)
}

// UnderWay reports whether a call may still come to an exit, as its slot says. sps
// are the stack pointers of all threads.
func (tg *Target) UnderWay(l *ExitProbe, in detour.Instance, sps []uint64) bool {
	slot := in.Slot
	if l.Calls.Go {
		g, distance := detour.GoCall(slot)
		lo, hi, sp, err := detour.GoStack(tg.Proc, g)
		if err != nil || distance > hi-lo {
			return false
		}
		for _, x := range sps {
			if x >= lo && x < hi {
				sp = x
			}
		}
		// What a panic has left lies below the stack pointer, or the goroutine
		// has ended, and its stack pointer is where it began.
		if slot = hi - distance; sp >= lo && sp <= hi && slot < sp {
			return false
		}
	} else if in.TID != 0 && tg.Proc.Thread(tg.Feed.Numbers.Outside(in.TID)) == nil {
		return false
	} else if l.Calls.Common {
		return true // threads free their own, near the calls that need their rows
	}
	var word [8]byte
	_, err := tg.Proc.ReadMemory(word[:], symbols.Addr(slot))
	return errors.Is(err, symbols.ErrLatePage) || err == nil && le64(word[:]) == in.Return
}
