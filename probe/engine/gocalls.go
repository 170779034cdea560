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
// They are seen at exits (returnexits.go) if the function checks its stack. A call is identified by
// its goroutine and the distance of its slot from the stack's upper end (detour.GoKey). Both stay the
// same when the stack is copied to grow, and when the goroutine moves to another thread. A call that
// is left by a panic or runtime.Goexit is not a return. Its row is taken over by the next call at
// that depth, or freed when the tracer finds its slot overwritten.
//
// If one of the places can't have a jump, all are breakpoints (returnbreakpoint.go), with the same
// keys. A change from jumps to breakpoints adopts the active calls. A change back would lose them,
// so there is none.

// withGo lists a patch and all patches that must give way together with it: those of the Go return
// probes that it serves, and so on. goes are these return probes.
func (tg *Target) withGo(p *Patch) (list []*Patch, goes []*Placed) {
	list = []*Patch{p}
	for i := 0; i < len(list); i++ { // the list grows in the loop
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

// A thread in the detour of an entry may be about to note its call. If the noted calls were adopted
// first, this one would be lost. So the threads run on until none is in such a detour: for at most
// entersFor tries, entersPause apart.
const (
	entersPause = time.Millisecond
	entersFor   = 100
)

// stoppedBetweenCalls calls fn with all threads stopped and none in a detour of the return probes
// goes. If a thread stays in one for too long, fn is called nevertheless.
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
		return !st.None() && st.Way() != nil && slices.Contains(goes, st.Way().Of().Owner.(*Placed)) && tg.Patches.Recording(symbols.Addr(at.Rip))
	})
}

// adoptCalls makes instances for the active calls that jumps have noted, so that breakpoints follow
// them.
func (tg *Target) adoptCalls(p *Placed, l *planner.ExitWay) {
	mem := make([]byte, l.Calls().Size())
	if _, err := tg.Proc.ReadMemory(mem, symbols.Addr(l.Calls().Addr)); err != nil {
		tg.Engine.Logf("%s: its active calls are not followed: %v", p.Where.Name(), err)
		return
	}
	for _, in := range l.Calls().Used(mem) {
		x := p.instances().Get()
		if x == nil {
			tg.Engine.miss(p)
			continue
		}
		g, distance := detour.GoCall(in.Slot)
		x.Probe, x.Pop, x.TGID, x.Return, x.Time = p, p.pop(), tg.Proc.PID(), symbols.Addr(in.Return), tg.Engine.now
		x.Key = callKey{PID: tg.Proc.PID(), G: g, SP: distance}
		x.Entry = append(x.Entry[:0], l.Calls().Entry(mem, in.Number)[:p.Program.EntrySize()]...)
		s := tg.Engine
		s.done = tg.calls.Leave(x.Key, func(old *Instance) bool { return old.Probe == p }, s.done)
		s.forget(tg)
		tg.calls.Add(x)
	}
}
