package engine

import (
	"context"
	"encoding/binary"
	"errors"

	"kprobe/probe/area"
	"kprobe/probe/detour"
	"kprobe/probe/feed"
	"kprobe/symbols"
)

// What the slot of a call holds
//
// Functions that jump to one another have one slot, and may be seen to return in different ways. So
// the slot may lead to the program through several return trampolines:
//
//	slot ─► return trampoline with a detour ─► … ─► trapping return trampoline ─► the program
//
// Those with detours keep in their instances where they lead to. At most one traps, and it is the
// last: its address replaces the program's own, wherever that is held. So no call that is noted
// already is passed over.
//
// Rows of calls by exits have what the slot held at the entry, and returns compare it. So they are
// changed with the slot.

// returnWord finds the word that holds where a call returns to behind its return trampolines with
// detours: its slot, or a word of an instance. ra is what the word holds: the program's address, or a
// trapping return trampoline.
func (tg *Target) returnWord(slot symbols.Addr) (at, ra symbols.Addr, err error) {
	var word [8]byte
	at = slot
	for range detour.MaxInstances {
		if _, err := tg.Proc.ReadTouched(word[:], at); err != nil {
			return 0, 0, err
		}
		ra = symbols.Addr(binary.LittleEndian.Uint64(word[:]))
		f, n := tg.held(ra)
		if f == nil {
			return at, ra, nil
		}
		at = symbols.Addr(f.Pool.ReturnAt(n))
	}
	return 0, 0, errors.New("return trampolines lead to one another without end") // the program has written to the instances
}

// trapped returns the program's address for one that returnWord has found. shared says that a call
// has the trapping return trampoline there.
func (tg *Target) trapped(ra symbols.Addr) (to symbols.Addr, shared bool) {
	i, ok := tg.Area.Trampolines.At(ra)
	if !ok {
		return ra, false
	}
	if in := tg.calls.ByTrampoline(i); in != nil {
		return in.Return, true
	}
	return tg.Area.Trampolines.Target(i), false
}

// catchReturn makes the thread stop when it has returned to in.Return, by a breakpoint there or by a
// trapping return trampoline, which the call may share with others. It reports whether it could.
func (tg *Target) catchReturn(ctx context.Context, in *Instance) bool {
	if tg.lands(ctx, in.Return) {
		return true
	}
	at, ra, err := tg.returnWord(in.Slot)
	if err != nil {
		return false
	}
	to, shared := tg.trapped(ra)
	if shared || to != in.Return {
		return shared && to == in.Return
	}
	i, trampoline, ok := tg.Area.Trampolines.Take(at, in.Return)
	if !ok {
		return false
	}
	tg.calls.Trap(in, i)
	if tg.Engine.recordsStacks() {
		first := tg.Area.Trampolines.First
		tg.Feed.Trampolines.Note(first, first+area.MostTrampolines*area.TrampolineSize, feed.Landed{Time: tg.Engine.now, At: trampoline, Slot: in.Slot, Ret: in.Return})
	}
	if err := tg.Proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, uint64(trampoline)), at); err != nil {
		tg.freeTrampoline(in)
		return false
	}
	if at == in.Slot {
		tg.moveRows(uint64(at), uint64(ra), uint64(trampoline))
	}
	return true
}

// moveRows changes the rows of calls with a slot that held the address was, and now holds is. The
// thread whose calls they are doesn't run.
func (tg *Target) moveRows(slot, was, is uint64) {
	for _, l := range tg.ExitProbes {
		k := l.Calls()
		if k.Go {
			continue
		}
		mem := tg.callsOf(k, slot)
		if mem == nil {
			continue
		}
		for _, in := range k.With(mem, slot) {
			if in.Return == was {
				_ = tg.Proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, is), symbols.Addr(k.ReturnAt(in.Number))) // fails only if the process is gone
			}
		}
	}
}

// enter adds a call to those that breakpoints follow, and forgets others with its key that are over:
// a call with the same slot means that they were abandoned, unless their functions have jumped on and
// the call is still active. It is, if the slot has their return trampoline; shared says so. together says
// that calls of the same stop are one call, whatever their functions.
func (tg *Target) enter(in *Instance, shared, together bool) {
	tg.calls.Enter(in, func(old *Instance) bool {
		switch {
		case old.Time == in.Time && old.TID == in.TID && old.Probe != in.Probe && (together || old.Probe.Where.Addr == in.Probe.Where.Addr):
			return false // the same call, noted for another probe
		case !shared && tg.unpatchable[in.Return]:
			return true // else the slot would have its trampoline
		case shared && old.Return == in.Return && !old.Inside && old.Probe != in.Probe:
			return false
		}
		return old.Probe == in.Probe || old.Inside || !old.Probe.tails || old.Return != in.Return
	}, func(old *Instance) {
		if old.Trampoline >= 0 {
			tg.freeTrampoline(old)
		}
	})
}

// comesBack reports whether a call that is entered is one that has come back to the probe's function by
// jumps, from an earlier call with the same slot that breakpoints follow and that is still active. Then
// it is not followed, because the instance of the other returns for both, and it is missed, unless the
// function has only jumped to its own entry. noted says that the call was noted in a table, and has left
// the function since.
func (s *Engine) comesBack(tg *Target, p *Placed, key callKey, ra symbols.Addr, shared, noted bool) bool {
	if p.GoABI {
		return false
	}
	old := tg.calls.Find(key, func(in *Instance) bool { return in.Probe == p && in.Return == ra })
	if old == nil || !shared && !tg.seesCalls(ra) {
		return false // without its call instruction, a call that was abandoned looks the same
	}
	if !noted && (old.Inside || old.Back || p.watch == unwatchable) {
		if f, err := tg.funcs.Leaving(*p.Where); err == nil && f.Leaving().StartsOver {
			return true
		}
	}
	if old.Inside {
		return false
	}
	old.Back = true
	s.miss(p)
	return true
}

// seesCalls reports whether a breakpoint is at the call instruction before a return address, where calls that were
// abandoned are forgotten (leftBehind).
func (tg *Target) seesCalls(ra symbols.Addr) bool {
	st := tg.Sites[tg.callers[ra]]
	return st != nil && st.Armed && st.calls
}
