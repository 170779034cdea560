package engine

import (
	"slices"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/symbols"
)

// Calls that end in a jump to an unknown address
//
// If a function ends in a jump through a register or memory, its detour looks up whether the function
// that it jumps to notes its calls in the same table (detour.BuildOnward). The lookup uses a set of
// such functions. A function is in it from when its jump is in the text (noteEntries) until the jump
// is about to be removed (unnoteEntries). A call with any other destination is seen again
// where it returns to (landings.go). If calls are not only counted, or there is no tally, the thread
// traps in the detour, and breakpoints follow the call from then on: only the returns at which a call
// is expected know what it records.
//
// If the destination's probe is removed while that function runs, the return of the function that
// jumped is not seen. Its row is freed by the next call with the same slot.

// fewEntries is the number of words up to which changes of the set are written one by one. More are
// written with the whole set.
const fewEntries = 64

// noteEntries adds the functions of patches that note their calls, or look for calls that arrive, to the sets.
func (tg *Target) noteEntries(list []*Patch) {
	fresh := map[*detour.Noting][]int{}
	for _, p := range list {
		for st := range p.allStages() {
			if at, ok := st.Takes(); ok && st.Exits().Noting() != nil {
				set := st.Exits().Noting()
				if i := set.Put(uint64(at)); i >= 0 {
					fresh[set] = append(fresh[set], i)
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

// unnoteEntries removes the functions of patches from the sets. It is called before their jumps are
// removed from the text.
func (tg *Target) unnoteEntries(list []*Patch) {
	for _, p := range list {
		for st := range p.allStages() {
			if at, ok := st.Takes(); ok && st.Exits().Noting() != nil {
				set := st.Exits().Noting()
				if i := set.Drop(uint64(at)); i >= 0 {
					tg.writeEntries(set, []int{i})
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

// followOnward makes breakpoints follow calls from a jump on. The thread is at a jump that leaves the
// function; the calls are those noted with its stack pointer. The session's context is filled.
func (s *Engine) followOnward(tg *Target, th *thread, st stage) {
	k, slot := st.Exits().Calls(), s.regs.GPR[fetch.SP]
	mem := tg.callsOf(k, slot)
	raw, err := tg.word(symbols.Addr(slot))
	if mem == nil || err != nil {
		return
	}
	type noted struct {
		detour.Instance
		id    uint32
		p     *Placed
		entry []byte
	}
	var rows []noted
	for _, in := range k.With(mem, slot) { // mem doesn't outlast a change
		for _, id := range k.OwnersOf(mem, in.Number) {
			if id != 0 { // else gone, as the row may be when the others have left it
				rows = append(rows, noted{in, id, tg.probeOf(id), slices.Clone(k.Entry(mem, in.Number))})
			}
		}
	}
	var landed []int
	for _, row := range rows {
		p := row.p
		wanted := row.Return == raw && p != nil && !s.Stopping // else left before, or nobody's
		if wanted && p.ByExits != nil && p.ByExits.Anywhere {
			if t := tg.tallyFor(p.ByExits); t != nil {
				if tg.landing(p.ByExits, t, symbols.Addr(raw)) != nil {
					landed = append(landed, row.Number)
					continue
				}
				if !p.ByExits.Followed() {
					s.miss(p)
					wanted = false
				}
			}
		}
		if mem := tg.callsOf(k, slot); mem != nil {
			tg.endCall(k, mem, row.Number, row.id)
		}
		if wanted {
			s.followRow(tg, th, p, symbols.Addr(slot), row.entry)
		}
	}
	for _, n := range landed {
		tg.passRow(k, n)
	}
}

// passRow marks a row as passing on.
func (tg *Target) passRow(k detour.Calls, row int) {
	at := symbols.Addr(k.Mark(row))
	var b [1]byte
	if _, err := tg.Proc.ReadMemory(b[:], at); err == nil {
		b[0] |= 1 << 7
		_ = tg.Proc.WriteMemory(b[:], at) // fails only if the process is gone
	}
}

// followRow is enterOne for a call that was noted in a table and has left its function.
func (s *Engine) followRow(tg *Target, th *thread, p *Placed, slot symbols.Addr, entry []byte) {
	c, err := tg.arrivingAt(slot)
	if err != nil {
		s.miss(p)
		return
	}
	key, _ := p.callKey(tg, &s.regs, slot)
	s.forgetOver(tg, p, key, c)
	in := s.instance(tg, th, p, key, c)
	if in == nil {
		return
	}
	in.Jumped = true
	if c.by == nil && !tg.catchReturn(s.Run, in) {
		in.Pool.Put(in)
		s.miss(p)
		return
	}
	in.Entry = append(in.Entry[:0], entry[:p.Program.EntrySize()]...)
	tg.calls.Add(in)
}

// probeOf finds the armed probe with number id; nil if there is none.
func (tg *Target) probeOf(id uint32) *Placed {
	if p := tg.Feed.probe(id); tg.Placed[p] {
		return p
	}
	return nil
}

// forgetRows frees the rows of calls of removed probes, in tables where any return may end a call of
// any probe (Calls.Anywhere). Otherwise a row could be taken for a call of the next probe with that
// number.
func (tg *Target) forgetRows(r *retired) error {
	gone, tables := map[uint64]map[uint32]bool{}, map[uint64]detour.Calls{}
	for _, p := range r.probes {
		if x := p.ByExits; x != nil && x.Calls().Anywhere {
			if gone[x.Calls().Addr] == nil {
				gone[x.Calls().Addr], tables[x.Calls().Addr] = map[uint32]bool{}, x.Calls()
			}
			gone[x.Calls().Addr][p.Id] = true
		}
	}
	for at, ids := range gone {
		k := tables[at]
		mem, err := tg.ownMemory(k.Size(), at)
		if err != nil {
			return err
		}
		for _, in := range k.Used(mem) {
			words, left := k.Gone(mem, in.Number, func(id uint32) bool { return ids[id] })
			if len(words) > 0 && !left {
				tg.freeCall(k, in.Number)
				continue
			}
			if err := tg.writeNobody(words); err != nil {
				return err
			}
		}
	}
	return nil
}
