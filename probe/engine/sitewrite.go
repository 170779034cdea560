package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/assess"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How breakpoints are laid, written and removed

// WriteAll writes the breakpoints of laid sites. It stops at the first error.
func (tg *Target) WriteAll(fresh []*Site) error {
	for _, st := range fresh {
		if err := tg.write(st); err != nil {
			return err
		}
	}
	return nil
}

// reserve maps memory for the copies of a batch, near the places in each module.
func (tg *Target) reserve(ctx context.Context, list []*assess.Place) error {
	type need struct {
		at symbols.Addr
		n  int
	}
	byModule := map[*symbols.Module]*need{}
	for _, w := range list {
		a := w.Site.Addr
		if tg.Sites[a] != nil {
			continue
		}
		m := w.Site.Module
		if byModule[m] == nil {
			byModule[m] = &need{at: a}
		}
		byModule[m].n++
	}
	for _, n := range byModule {
		if err := tg.Area.Code.Reserve(ctx, n.at, n.n); err != nil {
			return err
		}
	}
	return nil
}

// lay makes a site and writes its copy. The text doesn't change.
func (tg *Target) lay(ctx context.Context, wt *assess.Place) (*Site, error) {
	w, code := wt.Site, wt.Code()
	slot, err := tg.Area.Code.Slot(ctx, w.Addr)
	if err != nil {
		return nil, err
	}
	m, err := assess.Copy(w, code, slot, tg.shadowStack)
	if err != nil {
		tg.Area.Code.GiveBack(slot)
		return nil, err
	}
	if err := tg.Proc.WriteMemory(m.Code, slot); err != nil {
		tg.Area.Code.GiveBack(slot)
		return nil, fmt.Errorf("write the copy of %s: %w", w.Name(), err)
	}
	st := &Site{Addr: w.Addr, name: w.Name(), code: bytes.Clone(code), Length: int(wt.Inst().Len), moved: m, slot: slot, entry: -1}
	tg.Sites[w.Addr] = st
	tg.BySlot[slot] = st
	return st, nil
}

// write arms a site, in this order: journal, fallback handler's table, int3.
func (tg *Target) write(st *Site) error {
	var err error
	if st.entry, err = tg.Area.Journal.Add(st.Addr, st.slot, st.code); err != nil {
		return err
	}
	if err := tg.Area.Table.Insert(uint64(st.Addr), uint64(st.next())); err != nil {
		tg.Area.Journal.Remove(st.entry)
		st.entry = -1
		return fmt.Errorf("too many probes: %w", err)
	}
	st.Armed, st.met = true, true
	for _, list := range [][]*Placed{st.probes, st.returns, st.exits} {
		for _, p := range list {
			p.feed.setTactic(p, plan.Breakpoint)
		}
	}
	if err := tg.Proc.WriteMemory([]byte{breakpoint}, st.Addr); err != nil {
		return errors.Join(fmt.Errorf("write the breakpoint at %s: %w", st.name, err), tg.restore(st))
	}
	return nil
}

// restore removes the int3 of a site from the text. The copy stays. If the text has no int3 there,
// or no memory, nothing is written.
func (tg *Target) restore(st *Site) error {
	if !st.Armed {
		return nil
	}
	var now [1]byte
	_, err := tg.Proc.ReadMemory(now[:], st.Addr)
	if err != nil && !errors.Is(err, unix.EFAULT) && !errors.Is(err, unix.EIO) {
		return fmt.Errorf("restore %s: %w", st.name, err)
	}
	if err == nil && now[0] == breakpoint {
		if err := tg.Proc.WriteMemory(st.code[:1], st.Addr); err != nil {
			return fmt.Errorf("restore %s: %w", st.name, err)
		}
	}
	tg.disarmed(st)
	return nil
}

// disarmed notes that the site's int3 is no longer in the text, or that the text is unmapped.
func (tg *Target) disarmed(st *Site) {
	st.Armed = false
	tg.Area.Table.Retire(uint64(st.Addr))
	tg.Area.Journal.Remove(st.entry)
	st.entry = -1
}

// discard removes a site's int3 and forgets the site. The memory of the copy stays: the caller frees
// it once no thread is in it. If the int3 can't be removed, the site is stuck: it stays, serving
// nothing, until the next change tries again.
func (tg *Target) discard(st *Site) {
	if err := tg.restore(st); err != nil {
		say := tg.Engine.Warnf
		if errors.Is(err, tracee.ErrGone) {
			say = tg.Engine.Logf // the int3 is gone with its memory
		}
		say("%v", err)
		tg.Sites[st.Addr] = st
		tg.Retired.stuck = append(tg.Retired.stuck, st)
		return
	}
	if tg.Sites[st.Addr] == st {
		delete(tg.Sites, st.Addr)
	}
}

// discardUnused discards a site of a failed change. It frees the memory of the copy at once if the
// int3 was never in the text, and else retires the site.
func (tg *Target) discardUnused(st *Site) {
	if tg.discard(st); st.Armed {
		return
	}
	if st.met {
		tg.Retired.add(&retired{sites: []*Site{st}})
		return
	}
	delete(tg.BySlot, st.slot)
	forgetCopy(tg.Area.Table, st.moved, st.slot)
	tg.Area.Code.GiveBack(st.slot)
}

// discardStuck tries again to remove the int3s of stuck sites.
func (tg *Target) discardStuck() {
	for _, st := range tg.Retired.takeStuck() {
		switch {
		case !st.Armed || tg.Sites[st.Addr] != st:
		case !st.idle(): // it serves something again
		default:
			if tg.discard(st); !st.Armed {
				tg.Retired.add(&retired{sites: []*Site{st}})
			}
		}
	}
}

// serve makes the site serve one of kprobe's own breakpoints.
func (st *Site) serve(x own) {
	switch {
	case x.hook != nil:
		st.hooks = append(st.hooks, x.hook)
	case x.calls:
		st.calls = true
	case x.leaves != nil:
		st.leaves = append(st.leaves, x.leaves)
		if st.outwards = x.outwards; x.conditional {
			st.jcc = x.Inst().Opcode | 0x80
		}
	default:
		st.lands = true
	}
}

func hang(st *Site, w planner.Request) {
	switch w.Kind {
	case planner.Entry:
		st.probes = append(st.probes, PlacedOf(w))
	case planner.Return:
		st.returns = append(st.returns, PlacedOf(w))
	case planner.Exit, planner.LoneExit:
		st.exits = append(st.exits, PlacedOf(w))
		if w.Conditional {
			st.jcc = w.Inst().Opcode | 0x80 // never 0
		}
	case planner.Redirect:
		st.Redirect = w.To()
	}
}
