package engine

import (
	"context"
	"slices"
	"time"

	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Returns of Go functions with values of the entry
//
// They go by exits (returnexits.go), where the function checks its stack: the call is
// known by its goroutine and how far its slot lies from the stack's upper end, as
// stacks are copied when they grow (detour.GoKey). A goroutine that is moved to
// another thread in the call takes both with it. A call that is left by a panic or
// runtime.Goexit is no return; its row is taken by the next call at that depth, or
// given back when the tracer finds its slot used anew.
//
// Where one of the jumps can't be had, all are breakpoints (returnbreakpoint.go), with the
// same keys. A change from jumps to breakpoints takes over the calls that are under
// way; one back would lose them, and isn't made.

// withGo is a patch with all that goes with it when it makes way: the other patches
// of Go functions' return probes that it serves, and of theirs.
func (tg *Target) withGo(p *Patch) (list []*Patch, goes []*Placed) {
	list = []*Patch{p}
	for i := 0; i < len(list); i++ { // grows
		for _, w := range list[i].Wants {
			if !w.P.GoABI || w.P.ByExits == nil || slices.Contains(goes, PlacedOf(w)) {
				continue
			}
			goes = append(goes, PlacedOf(w))
			for _, q := range tg.Patches.List {
				if q.Armed && !slices.Contains(list, q) && slices.Contains(q.Probes(), PlacedOf(w)) {
					list = append(list, q)
				}
			}
		}
	}
	return list, goes
}

// A thread in the detour of an entry may be about to note its call, which nobody
// would find any more once the others are taken over: so it is let run until it
// has left, for as long as entersFor tries, one each entersPause.
const (
	entersPause = time.Millisecond
	entersFor   = 100
)

// stoppedBetweenCalls calls fn with the target stopped and no thread in the detours
// of the return probes goes, if it can be waited for.
func (tg *Target) stoppedBetweenCalls(ctx context.Context, goes []*Placed, fn func(stopped []*tracee.Thread) error) error {
	for try := 0; ; try++ {
		wait := false
		err := tg.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			if wait = try < entersFor && tg.amongCalls(goes, stopped); wait {
				return nil
			}
			return fn(stopped)
		})
		if !wait {
			return tracee.IgnoreLate(err)
		}
		time.Sleep(entersPause)
	}
}

// amongCalls reports whether a thread is noting or recording a call of one of the
// return probes.
func (tg *Target) amongCalls(goes []*Placed, stopped []*tracee.Thread) bool {
	return slices.ContainsFunc(stopped, func(t *tracee.Thread) bool {
		regs, err := t.Regs()
		if err != nil {
			return false // gone
		}
		st, at := tg.StageOf(regs)
		return st != nil && st.Way != nil && slices.Contains(goes, st.Way.Of().Owner.(*Placed)) && tg.Patches.Recording(symbols.Addr(at.Rip))
	})
}

// adoptCalls makes the calls that are under way ones that are followed by
// breakpoints.
func (tg *Target) adoptCalls(p *Placed, l *planner.ExitWay) {
	mem := make([]byte, l.Calls.Size())
	if _, err := tg.Proc.ReadMemory(mem, symbols.Addr(l.Calls.Addr)); err != nil {
		tg.Engine.Logf("%s: calls that are under way are not followed: %v", p.Where.Name, err)
		return
	}
	for _, in := range l.Calls.Used(mem) {
		x := p.pool.Get()
		if x == nil {
			return
		}
		g, distance := detour.GoCall(in.Slot)
		x.Probe, x.Pop, x.TGID, x.Return, x.Time = p, p.pop, tg.Proc.PID(), symbols.Addr(in.Return), tg.Engine.now
		x.Key = callKey{PID: tg.Proc.PID(), G: g, SP: distance}
		x.Entry = append(x.Entry[:0], l.Calls.Entry(mem, in.Number)[:p.Program.EntrySize()]...)
		tg.calls.Enter(x, func(old *Instance) bool { return old.Probe == p })
	}
}
