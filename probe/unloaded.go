package probe

import (
	"context"
	"errors"
	"slices"

	"kprobe/probe/assess"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// refresh takes note of what the program has loaded and unloaded.
func (tg *target) refresh() error {
	before := tg.space.Modules()
	if err := tg.space.Refresh(); err != nil {
		return err
	}
	if !slices.Equal(before, tg.space.Modules()) {
		clear(tg.funcs)
	}
	return nil
}

// forgetGone drops what kprobe believes to have written at the places of a
// batch and what isn't there any more: their library was unloaded, and loaded
// again at the same address.
func (tg *target) forgetGone(ctx context.Context, c *changeset) error {
	places := make([]*assess.Place, 0, len(c.add)+len(c.own))
	for _, w := range c.add {
		places = append(places, w.Place)
	}
	for i := range c.own {
		places = append(places, &c.own[i].Place)
	}
	for _, w := range places {
		if p := tg.patches.covering(w.Site.Addr, int(w.Inst.Len)); p != nil && !tg.holds(symbols.Addr(p.plan.Writes[0].At), p.plan.Writes[0].Bytes) {
			// Its bytes differ, so restoring writes none.
			err := tg.withStopped(ctx, func(stopped []*tracee.Thread) error { return tg.restorePatches([]*patch{p}, stopped) })
			if err := tracee.IgnoreLate(err); err != nil {
				return err
			}
		}
		if st := tg.sites[w.Site.Addr]; st != nil && st.armed && !tg.holds(st.addr, []byte{breakpoint}) {
			tg.discard(st)
			tg.retired = append(tg.retired, &retired{sites: []*site{st}})
		}
	}
	return nil
}

// holds reports whether the memory at a is b, as far as can be read.
func (tg *target) holds(a symbols.Addr, b []byte) bool {
	now := make([]byte, len(b))
	_, err := tg.proc.ReadMemory(now, a)
	return errors.Is(err, symbols.ErrLatePage) || err == nil && string(now) == string(b)
}
