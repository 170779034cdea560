package engine

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// trampolineReturns is the returnWay of returns that are seen by return trampolines.
type trampolineReturns struct{ *planner.TrampolineWay }

func (f trampolineReturns) inUse() bool { return f.Probe.Owner.(*Placed).Optimized }

func (f trampolineReturns) leave(st stage, regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	var r fetch.Regs
	tracee.FetchRegs(regs, &r)
	ok, err := st.Trampolines().Leave(&r, mem, uint64(st.At))
	if err != nil {
		return nil, false
	}
	out := *regs
	out.Rip = uint64(st.At)
	if ok {
		fromFetch(&r, &out)
		out.Rip = r.IP
	}
	return &out, true
}

// held finds the call whose return trampoline is at an address: the way and the number of the
// instance. The way is nil if there is none.
func (tg *Target) held(a symbols.Addr) (*planner.TrampolineWay, int) {
	st := tg.Patches.StageAt(a)
	if st.None() {
		return nil, 0
	}
	f, ok := st.Way().(*planner.TrampolineWay)
	if !ok {
		return nil, 0
	}
	n := st.Trampolines().Instance(uint64(a))
	if n == 0 || st.Trampolines().Trampoline(n) != uint64(a) {
		return nil, 0
	}
	return f, n
}

// abandoned reports whether a call won't return by its return trampoline. It follows the slot from
// return trampoline to return trampoline; there are several if functions have jumped to each other.
// The call is abandoned if its own trampoline is not among them.
func (f trampolineReturns) abandoned(tg *Target, in detour.Instance, _ []uint64) bool {
	var word [8]byte
	next := symbols.Addr(in.Slot)
	for range detour.MaxInstances {
		if _, err := tg.Proc.ReadMemory(word[:], next); err != nil {
			return !errors.Is(err, symbols.ErrLatePage)
		}
		now, n := tg.held(symbols.Addr(le64(word[:])))
		if now == nil {
			return true
		}
		if now == f.TrampolineWay && n == in.Number {
			return false
		}
		next = symbols.Addr(now.Pool.ReturnAt(n))
	}
	return false
}

// rollBack moves a thread out of the code of a call or a return. A call that can't be noted is
// missed. A return that can't be recorded is lost, and its instance is reclaimed when it is needed.
func (f trampolineReturns) rollBack(tg *Target, at faulting) (v tracee.Verdict, done bool) {
	t, st := at.t, at.st
	var r fetch.Regs
	tracee.FetchRegs(at.in, &r)
	d := st.Detour()
	taken, inFrame, _ := d.Undo(&r, tg.Proc)
	out, ok := f.leave(st, at.in, tg.Proc)
	if !ok {
		return tracee.Deliver, false
	}
	tg.faulted(t, at.si)
	trampoline := out.Rip != uint64(st.At)
	if !trampoline {
		out.Rip = uint64(st.CopyAt())
	}
	if err := errors.Join(t.EndSequence(tg.inStage), t.SetRegs(out)); err != nil {
		return tracee.Resume, true // gone
	}
	tg.rollbacks++
	s, p := tg.Engine, f.Probe.Owner.(*Placed)
	if (!inFrame || taken == 0) && s.fill(tg, tg.thread(t)) == nil && !s.Stopping && p.feed.enabled(p) {
		if trampoline {
			p.feed.producer.Count(s.ctx.CPU, p.Id, ring.CounterLost, 1)
		} else {
			s.miss(p)
		}
	}
	return tg.resumed(t, out), true
}

// behind returns the program's return address for an address from a slot: a itself, or, if a is a
// return trampoline, the return address that its instance holds.
func (tg *Target) behind(a symbols.Addr) symbols.Addr {
	f, n := tg.held(a)
	if f == nil {
		return a
	}
	var word [8]byte
	if _, err := tg.Proc.ReadMemory(word[:], symbols.Addr(f.Pool.RealAt(n))); err != nil {
		return a
	}
	return symbols.Addr(binary.LittleEndian.Uint64(word[:]))
}
