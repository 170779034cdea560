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

// trapped returns the program's address for one that returnWord has found. by is the call whose trapping
// return trampoline it is; nil if there is none.
func (tg *Target) trapped(ra symbols.Addr) (to symbols.Addr, by *Instance) {
	i, ok := tg.Area.Trampolines.At(ra)
	if !ok {
		return ra, nil
	}
	if by = tg.calls.ByTrampoline(i); by != nil {
		return by.Return, by
	}
	return tg.Area.Trampolines.Target(i), nil
}

// arriving is a call at the entry of its function, or, where it was noted in a table, behind it.
type arriving struct {
	slot, ret symbols.Addr
	by        *Instance // the call whose trapping return trampoline is there: the same call, or one that has jumped here; nil: none
}

// arrivingAt finds out where a call returns to whose slot is known.
func (tg *Target) arrivingAt(slot symbols.Addr) (c arriving, err error) {
	_, held, err := tg.returnWord(slot)
	if err != nil {
		return c, err
	}
	c.slot = slot
	c.ret, c.by = tg.trapped(held)
	return c, nil
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
	to, by := tg.trapped(ra)
	if by != nil || to != in.Return {
		return by != nil && to == in.Return
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
