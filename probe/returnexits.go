package probe

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

// exitProbe is a return probe of exits.
type exitProbe struct {
	noted
	exits []patchRequest
	calls detour.Calls
	// anywhere says that any return which looks into the table in common may be one of its
	// calls'. noting is set where one of that table's functions ends in a jump of which
	// only the program knows where it leads; open says which jump, and why.
	anywhere bool
	noting   *detour.Noting
	open     string
	// own says that the function's own return instructions are all of its exits, plain that
	// these and jumps to other functions are (exits.Exits). alone says that each of its
	// own is a hit by itself, and the entry isn't patched (alonereturns.go).
	own, plain, alone bool
}

// leavable says why a function whose calls can't return by return trampolines can't be
// probed at its exits either; "" if it may be.
func (tg *target) leavable(w patchRequest) string {
	if w.p.goABI || w.Site.Module.File.IsGo() {
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

func (l *exitProbe) memory() callMemory            { return l.calls }
func (l *exitProbe) at() uint64                    { return l.calls.Addr }
func (l *exitProbe) blank(s *detour.Shared) []byte { return l.calls.Head(s) }
func (l *exitProbe) inUse() bool                   { return true }
func (l *exitProbe) outlives() bool                { return false }

func (l *exitProbe) owns(mem []byte, number int, p *placed) bool {
	return l.calls.Owner(mem, number, p.id)
}

func (l *exitProbe) buildEntry(o *planner, st *stage, ws []patchRequest, tail tailFunc) ([]byte, error) {
	return o.enterStage(st, ws, tail)
}

func (l *exitProbe) leave(st *stage, regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	return st.leaveDetour(regs, mem)
}

func (l *exitProbe) rollBack(tg *target, at faulting) (v tracee.Verdict, done bool) {
	return tg.detourRolledBack(at)
}

// places is how many places are patched for the probe.
func (l *exitProbe) places() int {
	if l.alone {
		return len(l.exits)
	}
	return len(l.exits) + 1
}

// cheap reports whether the returns are few and the function's own.
func (l *exitProbe) cheap(w symbols.Site) bool {
	return len(l.exits) <= fewExits && l.open == "" &&
		!slices.ContainsFunc(l.exits, func(e patchRequest) bool { return !e.within(w) })
}

// giveUpExits makes the probe a breakpoint; when it is planned again it is judged
// anew. One of a Go function stays what it is: the calls that are under way are
// followed so.
func (c *course) giveUpExits(goABI bool) {
	c.byExits, c.analysed, c.tactic = nil, goABI, plan.Breakpoint
	if goABI {
		if c.trapped = c.why; c.trapped == "" {
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
func (o *planner) addExits(ws []patchRequest, groups map[*assess.Function][]patchRequest, rest []patchRequest) []patchRequest {
	tg := o.tg
	sharing, trapped := map[symbols.Addr]*sharers{}, o.trapped(rest)
	failed := map[*placed]bool{}
	for _, w := range ws {
		if w.kind != requestReturn || o.course(w.p).byExits == nil {
			continue
		}
		f, err := tg.leaving(w.Site)
		if err != nil || !slices.ContainsFunc(groups[f], func(x patchRequest) bool { return x.p == w.p }) {
			o.course(w.p).giveUpExits(w.p.goABI) // its entry is a breakpoint
			continue
		}
		x := o.course(w.p).byExits
		if x.open != "" && x.noting == nil {
			failed[w.p], o.course(w.p).why = true, x.open
		}
		for _, e := range x.exits {
			if o.occupied(e.Site.Addr) || trapped[e.Site.Addr] {
				failed[w.p], o.course(w.p).why = true, "a breakpoint is at one of its exits, "+e.Site.Name
			} else if !sharing[e.Site.Addr].fits(x, e) {
				failed[w.p], o.course(w.p).why = true, "too many functions return by "+e.Site.Name
			}
		}
		if failed[w.p] {
			continue
		}
		for _, e := range x.exits {
			if sharing[e.Site.Addr] == nil {
				sharing[e.Site.Addr] = &sharers{}
			}
			sharing[e.Site.Addr].add(x, e)
			// Without one of its patches the probe is given up (whole).
			if g, err := tg.leaving(e.Site); err == nil {
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

func (s *sharers) fits(x *exitProbe, e patchRequest) bool {
	switch {
	case s == nil:
		return true
	case x.tells(e) && s.owners >= maxOwners:
		return false
	}
	return len(s.tables) < maxShared || slices.Contains(s.tables, x.calls.Addr)
}

func (s *sharers) add(x *exitProbe, e patchRequest) {
	if !slices.Contains(s.tables, x.calls.Addr) {
		s.tables = append(s.tables, x.calls.Addr)
	}
	if x.tells(e) {
		s.owners++
	}
}

// tells reports whether a return must tell the probe's calls from others of the table in
// common.
func (l *exitProbe) tells(e patchRequest) bool {
	return l.calls.Common && !l.anywhere && e.passing == detour.NotPassing
}

// abandoned reports whether a call's thread is gone, or the program has used its slot
// anew, so that it can't come to an exit.
func (l *exitProbe) abandoned(tg *target, in detour.Instance, sps []uint64) bool {
	return !tg.underWay(l, in, sps)
}

// underWay reports whether a call may still come to an exit, as its slot says. sps
// are the stack pointers of all threads.
func (tg *target) underWay(l *exitProbe, in detour.Instance, sps []uint64) bool {
	slot := in.Slot
	if l.calls.Go {
		g, distance := detour.GoCall(slot)
		lo, hi, sp, err := detour.GoStack(tg.proc, g)
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
	} else if in.TID != 0 && tg.proc.Thread(tg.feed.numbers.Outside(in.TID)) == nil {
		return false
	} else if l.calls.Common {
		return true // threads free their own, near the calls that need their rows
	}
	var word [8]byte
	_, err := tg.proc.ReadMemory(word[:], symbols.Addr(slot))
	return errors.Is(err, symbols.ErrLatePage) || err == nil && le64(word[:]) == in.Return
}
