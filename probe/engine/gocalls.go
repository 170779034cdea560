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
// entersFor tries, entersPause apart. One that is still there may have to wait for the tracer, with a
// signal, or for a processor: it is stepped out while the others are stopped.
const (
	entersPause = time.Millisecond
	entersFor   = 10
	// mostInDetour is how many instructions it executes at most. A detour has some hundred, and may copy a page
	// byte by byte.
	mostInDetour = 1 << 13
)

// stoppedBetweenCalls calls fn with all threads stopped and none on its way to a hit in a detour of the return
// probes goes. A thread may be there nevertheless if it waits in a system call or with a fault.
func (tg *Target) stoppedBetweenCalls(ctx context.Context, goes []*Placed, fn func(stopped []*tracee.Thread) error) error {
	for try := 0; ; try++ {
		again := false
		err := tg.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			among := tg.amongCalls(goes, stopped)
			if again = len(among) > 0 && try < entersFor; again {
				return nil
			}
			for _, t := range among {
				tg.stepOutOfCall(t)
			}
			return fn(stopped)
		})
		if !again {
			return tracee.IgnoreLate(err)
		}
		time.Sleep(entersPause)
	}
}

// amongCalls lists the threads that are to note or record a call of one of the return probes, or do so.
func (tg *Target) amongCalls(goes []*Placed, stopped []*tracee.Thread) (list []*tracee.Thread) {
	if len(goes) == 0 {
		return nil
	}
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil {
			continue // gone
		}
		st, at := tg.StageOf(regs)
		if st.leadsToHit(symbols.Addr(at.Rip)) && slices.ContainsFunc(st.patch.Probes(), func(p *Placed) bool { return slices.Contains(goes, p) }) {
			list = append(list, t)
		}
	}
	return list
}

// leadsToHit reports whether a thread at pc takes a hit in the stage, or in the next one, or is taking it.
func (s stage) leadsToHit(pc symbols.Addr) bool {
	if s.None() {
		return false
	}
	return !s.Probed() || s.CopyAt() == s.Base || !s.copies(pc)
}

// stepOutOfCall steps a thread until it has taken its hit, as far as it gets. A system call of the program's may wait
// for anything, so it isn't stepped over.
func (tg *Target) stepOutOfCall(t *tracee.Thread) {
	regs, err := t.Regs()
	if err != nil || int64(regs.Orig_rax) >= 0 {
		return
	}
	tg.Area.StepOut(t, func(pc symbols.Addr) bool {
		st := tg.Patches.StageAt(pc)
		return tg.InShared(pc) || st.leadsToHit(pc) && !(st.copies(pc) && tg.atSyscall(pc))
	}, mostInDetour)
}

// atSyscall reports whether the instruction at pc is a system call. If it can't be read, it may be one.
func (tg *Target) atSyscall(pc symbols.Addr) bool {
	var b [2]byte
	n, err := tg.Proc.ReadMemory(b[:], pc)
	return err != nil || n < len(b) || b == [2]byte{0x0f, 0x05}
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
