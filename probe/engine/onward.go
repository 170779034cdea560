package engine

import (
	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/symbols"
)

// Calls that end in a jump to an unknown address
//
// If a function ends in a jump through a register or memory, its detour looks up whether the
// target notes its calls in the same table (detour.BuildOnward). The set for that lookup
// contains such functions from when their jumps are in the text (noteEntries) until they are
// about to be removed (unnoteEntries). For any other target the thread traps here, and
// breakpoints follow the call from then on. It also traps if more than the number of calls is
// wanted, because only the returns at which a call is expected know what it records.
//
// If the probe of the jump's target is removed while the target runs, the return of the
// function that jumped is not seen: its row is freed by the next call that takes its slot.

// fewEntries is up to how many entries are written one by one.
const fewEntries = 64

// noteEntries says of functions that they note their calls.
func (tg *Target) noteEntries(list []*Patch) {
	fresh := map[*detour.Noting][]int{}
	for _, p := range list {
		for st := range p.allStages() {
			if x := st.Exits(); x != nil && !st.Leaves && x.Noting != nil {
				if i := x.Noting.Put(uint64(x.Probe.Where.Addr)); i >= 0 {
					fresh[x.Noting] = append(fresh[x.Noting], i)
				}
			}
		}
	}
	for n, words := range fresh {
		if len(words) > fewEntries {
			_ = tg.Proc.WriteMemory(n.Bytes(), symbols.Addr(n.Addr)) // fails only if the process is gone
			continue
		}
		tg.writeEntries(n, words)
	}
}

// unnoteEntries is what comes before the jumps of functions are taken out.
func (tg *Target) unnoteEntries(list []*Patch) {
	for _, p := range list {
		for st := range p.allStages() {
			if x := st.Exits(); x != nil && !st.Leaves && x.Noting != nil {
				if i := x.Noting.Drop(uint64(x.Probe.Where.Addr)); i >= 0 {
					tg.writeEntries(x.Noting, []int{i})
				}
			}
		}
	}
}

func (tg *Target) writeEntries(n *detour.Noting, words []int) {
	for _, i := range words {
		at, b := n.Word(i)
		_ = tg.Proc.WriteMemory(b, symbols.Addr(at)) // fails only if the process is gone
	}
}

// followOnward has the calls that are noted with the thread's stack pointer followed to
// where they return to: the thread is at a jump that leaves them. The session's context
// is filled.
func (s *Engine) followOnward(tg *Target, th *thread, st *stage) {
	k, slot := st.Exits().Calls, s.regs.GPR[fetch.SP]
	mem := tg.callsOf(k, slot)
	raw, err := tg.word(symbols.Addr(slot))
	if mem == nil || err != nil {
		return
	}
	for _, row := range k.With(mem, slot) {
		tg.freeCall(k, row.Number)
		p := tg.probeOf(k.OwnerOf(mem, row.Number))
		if row.Return != raw || p == nil || s.Stopping {
			continue // left before, or nobody wants it
		}
		s.followRow(tg, th, p, symbols.Addr(slot), symbols.Addr(raw), k.Entry(mem, row.Number))
	}
}

// followRow is enterOne for a call that was noted: it has left its function.
func (s *Engine) followRow(tg *Target, th *thread, p *Placed, slot, raw symbols.Addr, entry []byte) {
	in := p.pool.Get()
	if in == nil {
		tg.reclaim(th, p.pool)
		if in = p.pool.Get(); in == nil {
			s.miss(p)
			return
		}
	}
	ra, shared := tg.behind(raw), false
	if by := tg.callAt(ra); by != nil {
		ra, shared = by.Return, true
	}
	in.Probe, in.Pop, in.TID, in.TGID = p, p.pop, th.t.TID(), tg.Proc.PID()
	in.Slot, in.Return, in.Time = slot, ra, s.now
	in.Key, _ = p.callKey(tg, &s.regs, slot)
	in.Inside = false
	if !shared && !tg.catchReturn(s.Run, in) {
		p.pool.Put(in)
		s.miss(p)
		return
	}
	in.Entry = append(in.Entry[:0], entry[:p.Program.EntrySize()]...)
	tg.calls.Enter(in, func(old *Instance) bool {
		if old.Time == in.Time && old.TID == in.TID && old.Probe != in.Probe {
			return false // of this very call, too
		}
		stale := old.Probe == in.Probe || old.Inside || !old.Probe.tails || old.Return != in.Return
		if stale && old.Trampoline >= 0 {
			tg.freeTrampoline(old)
		}
		return stale
	})
}

// probeOf is the probe of a number that is armed; nil: there is none.
func (tg *Target) probeOf(id uint32) *Placed {
	if p := tg.Feed.probe(id); tg.Placed[p] {
		return p
	}
	return nil
}

// forgetRows frees the rows of calls of probes that were taken out, in tables where any
// return may be theirs: their numbers will be others'.
func (tg *Target) forgetRows(r *retired) error {
	gone, tables := map[uint64]map[uint32]bool{}, map[uint64]detour.Calls{}
	for _, p := range r.probes {
		if x := p.ByExits; x != nil && x.Calls.Anywhere {
			if gone[x.Calls.Addr] == nil {
				gone[x.Calls.Addr], tables[x.Calls.Addr] = map[uint32]bool{}, x.Calls
			}
			gone[x.Calls.Addr][p.Id] = true
		}
	}
	for at, ids := range gone {
		k := tables[at]
		mem, err := tg.ownMemory(k.Size(), at)
		if err != nil {
			return err
		}
		for _, in := range k.Used(mem) {
			if ids[k.OwnerOf(mem, in.Number)] {
				tg.freeCall(k, in.Number)
			}
		}
	}
	return nil
}
