package engine

import (
	"context"
	"errors"
	"slices"

	"kprobe/probe/assess"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// refresh reads the process's mappings again, and forgets decoded functions if modules have changed.
func (tg *Target) refresh() error {
	before := tg.Space.Modules()
	if err := tg.Space.Refresh(); err != nil {
		return err
	}
	if !slices.Equal(before, tg.Space.Modules()) {
		clear(tg.funcs)
	}
	return nil
}

// forgetGone retires patches at the places of a change that are no longer in the text: the library was
// unloaded, and loaded again at the same address.
func (tg *Target) forgetGone(ctx context.Context, c *changeset) error {
	places := make([]*assess.Place, 0, len(c.add)+len(c.own))
	for _, w := range c.add {
		places = append(places, w.Place)
	}
	for i := range c.own {
		places = append(places, &c.own[i].Place)
	}
	for _, w := range places {
		if p := tg.Patches.Covering(w.Site.Addr, int(w.Inst().Len)); p != nil && !tg.hasJump(p) {
			// Its bytes differ, so restoring writes none.
			err := tg.WithStopped(ctx, func(stopped []*tracee.Thread) error { return tg.RestorePatches([]*Patch{p}, stopped) })
			if err := tracee.IgnoreLate(err); err != nil {
				return err
			}
		}
		if st := tg.Sites[w.Site.Addr]; st != nil && st.Armed && !tg.Holds(st.Addr, []byte{breakpoint}) {
			tg.discard(st)
			tg.Retired.add(&retired{sites: []*Site{st}})
		}
	}
	return nil
}

// hasJump reports whether the text has the jump of a patch.
func (tg *Target) hasJump(p *Patch) bool {
	w, ok := p.Plan.LastWrite()
	return ok && tg.Holds(symbols.Addr(w.At), w.Bytes)
}

// Holds reports whether the memory at a equals b. It is true if the memory can't be read for the moment
// (symbols.ErrLatePage).
func (tg *Target) Holds(a symbols.Addr, b []byte) bool {
	now := make([]byte, len(b))
	_, err := tg.Proc.ReadMemory(now, a)
	return errors.Is(err, symbols.ErrLatePage) || err == nil && string(now) == string(b)
}
