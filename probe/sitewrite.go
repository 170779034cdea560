package probe

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/assess"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// How breakpoints are laid, written and taken out

// writeAll writes the breakpoints of sites that are laid.
func (tg *target) writeAll(fresh []*site) error {
	for _, st := range fresh {
		if err := tg.write(st); err != nil {
			return err
		}
	}
	return nil
}

// reserve maps memory for the copies of a batch, near each of its places.
func (tg *target) reserve(ctx context.Context, list []*assess.Place) error {
	type need struct {
		at symbols.Addr
		n  int
	}
	byModule := map[*symbols.Module]*need{}
	for _, w := range list {
		a := w.Site.Addr
		if tg.sites[a] != nil {
			continue
		}
		m := w.Site.Module
		if byModule[m] == nil {
			byModule[m] = &need{at: a}
		}
		byModule[m].n++
	}
	for _, n := range byModule {
		if err := tg.area.Code.Reserve(ctx, n.at, n.n); err != nil {
			return err
		}
	}
	return nil
}

// lay makes a site and writes its copy; the text is not touched.
func (tg *target) lay(ctx context.Context, wt *assess.Place) (*site, error) {
	w, code := wt.Site, wt.Code
	slot, err := tg.area.Code.Slot(ctx, w.Addr)
	if err != nil {
		return nil, err
	}
	m, err := assess.Copy(w, code, slot, tg.shadowStack)
	if err != nil {
		tg.area.Code.GiveBack(slot)
		return nil, err
	}
	if err := tg.proc.WriteMemory(m.Code, slot); err != nil {
		tg.area.Code.GiveBack(slot)
		return nil, fmt.Errorf("write the copy of %s: %w", w.Name, err)
	}
	st := &site{addr: w.Addr, name: w.Name, code: code, length: int(wt.Inst.Len), moved: m, slot: slot, entry: -1}
	tg.sites[w.Addr] = st
	tg.bySlot[slot] = st
	return st, nil
}

// write arms a site: journal, table, int3.
func (tg *target) write(st *site) error {
	var err error
	if st.entry, err = tg.area.Journal.Add(st.addr, st.slot, st.code); err != nil {
		return err
	}
	if err := tg.area.Table.Insert(uint64(st.addr), uint64(st.next())); err != nil {
		tg.area.Journal.Remove(st.entry)
		st.entry = -1
		return fmt.Errorf("too many probes: %w", err)
	}
	st.armed, st.met = true, true
	for _, list := range [][]*placed{st.probes, st.returns, st.exits} {
		for _, p := range list {
			p.feed.setTactic(p, plan.Breakpoint)
		}
	}
	if err := tg.proc.WriteMemory([]byte{breakpoint}, st.addr); err != nil {
		return errors.Join(fmt.Errorf("write the breakpoint at %s: %w", st.name, err), tg.restore(st))
	}
	return nil
}

// restore takes the int3 of a site out. The copy stays.
func (tg *target) restore(st *site) error {
	if !st.armed {
		return nil
	}
	var now [1]byte
	_, err := tg.proc.ReadMemory(now[:], st.addr)
	if err != nil && !errors.Is(err, unix.EFAULT) && !errors.Is(err, unix.EIO) {
		return fmt.Errorf("restore %s: %w", st.name, err)
	}
	if err == nil && now[0] == breakpoint {
		if err := tg.proc.WriteMemory(st.code[:1], st.addr); err != nil {
			return fmt.Errorf("restore %s: %w", st.name, err)
		}
	}
	tg.disarmed(st)
	return nil
}

// disarmed notes that the site's int3 is out, or gone with its text.
func (tg *target) disarmed(st *site) {
	st.armed = false
	tg.area.Table.Retire(uint64(st.addr))
	tg.area.Journal.Remove(st.entry)
	st.entry = -1
}

// discard takes a site out and forgets it. Its slot is given back only by
// those who know that no thread is in it. A site whose int3 stays in the text stays,
// without a use, until the next change tries again.
func (tg *target) discard(st *site) {
	if err := tg.restore(st); err != nil {
		tg.s.warnf("%v", err)
		tg.sites[st.addr] = st
		tg.stuck = append(tg.stuck, st)
		return
	}
	if tg.sites[st.addr] == st {
		delete(tg.sites, st.addr)
	}
}

// discardUnused discards a site of a change that has failed, and gives its copy's
// memory back: at once if no thread can have met it.
func (tg *target) discardUnused(st *site) {
	if tg.discard(st); st.armed {
		return
	}
	if st.met {
		tg.retired = append(tg.retired, &retired{sites: []*site{st}})
		return
	}
	delete(tg.bySlot, st.slot)
	tg.leaveCopy(st.moved, st.slot)
	tg.area.Code.GiveBack(st.slot)
}

// discardStuck tries again to take out the int3s that could not be taken out.
func (tg *target) discardStuck() {
	list := tg.stuck
	tg.stuck = nil
	for _, st := range list {
		switch {
		case !st.armed || tg.sites[st.addr] != st:
		case !st.idle(): // it has a use again
		default:
			if tg.discard(st); !st.armed {
				tg.retired = append(tg.retired, &retired{sites: []*site{st}})
			}
		}
	}
}

// serve has a site serve kprobe itself.
func (st *site) serve(x own) {
	switch {
	case x.hook != nil:
		st.hooks = append(st.hooks, x.hook)
	case x.calls:
		st.calls = true
	case x.leaves != nil:
		st.leaves = append(st.leaves, x.leaves)
		if st.outwards = x.outwards; x.conditional {
			st.jcc = x.Inst.Opcode | 0x80
		}
	default:
		st.lands = true
	}
}

func hang(st *site, w patchRequest) {
	switch w.kind {
	case requestEntry:
		st.probes = append(st.probes, w.p)
	case requestReturn:
		st.returns = append(st.returns, w.p)
	case wantExit, requestExit:
		st.exits = append(st.exits, w.p)
		if w.conditional {
			st.jcc = w.Inst.Opcode | 0x80 // never 0
		}
	case wantRedirect:
		st.redirect = w.to
	}
}
