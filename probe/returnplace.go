package probe

import (
	"context"
	"errors"

	"kprobe/symbols"
)

var errNoFile = errors.New("no file is mapped there")

// lands makes sure that a thread that returns to ra stops there, and reports
// whether it does. The breakpoint stays until the end of the session: a caller
// that called once calls again.
func (tg *target) lands(ctx context.Context, ra symbols.Addr) bool {
	if st := tg.sites[ra]; st != nil && st.armed {
		st.lands = true
		return true
	}
	if tg.unpatchable[ra] {
		return false
	}
	if err := tg.armReturn(ctx, ra); err != nil {
		tg.s.logf("calls that return to %v get a return trampoline: %v", ra, err)
		tg.unpatchable[ra] = true
		return false
	}
	return true
}

func (tg *target) armReturn(ctx context.Context, ra symbols.Addr) error {
	m := tg.space.ModuleAt(ra)
	if m == nil {
		if err := tg.space.Refresh(); err != nil {
			return err
		}
		m = tg.space.ModuleAt(ra)
	}
	if m == nil || m.File == nil {
		return errNoFile
	}
	w := symbols.Site{Addr: ra, Module: m, Vaddr: symbols.Vaddr(uint64(ra) - m.Bias), Name: ra.String()}
	if name, off, _, _, ok := tg.space.Symbolize(ra); ok {
		w.Name = symbols.Place{Symbol: name, Offset: int64(off)}.String()
		w.Func.Symbol.Name = name
	}
	code, inst, err := tg.proveStart(w)
	if err != nil {
		return err
	}
	return tg.armOwn(ctx, own{probed: probed{w, code, inst}})
}
