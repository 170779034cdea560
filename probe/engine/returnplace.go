package engine

import (
	"context"
	"errors"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/insn"
	"kprobe/symbols"
)

var errNoFile = errors.New("no file is mapped there")

// lands ensures that there is a breakpoint at the return address ra, and reports whether there is.
// It stays as long as the target has return probes, because a caller that called once will call
// again.
//
// The call instruction before ra gets a breakpoint, too. A call that was left by longjmp or an
// exception is over when the next one is made with the same stack pointer: the thread that then
// returns to ra ends the next call. If no call instruction is known, or it can't carry a
// breakpoint, the two calls can't be distinguished.
func (tg *Target) lands(ctx context.Context, ra symbols.Addr) bool {
	st := tg.Sites[ra]
	if st != nil && st.Armed && st.lands {
		return true
	}
	if tg.unpatchable[ra] {
		return false
	}
	var list []own
	delete(tg.callers, ra)
	if call, ok := tg.callBefore(ra); ok {
		list = append(list, own{Place: call, calls: true})
		tg.callers[ra] = call.Site.Addr
	}
	err := tg.armReturn(ctx, ra, list)
	if err != nil && len(list) > 0 {
		tg.Engine.Logf("who calls before %v is not seen: %v", ra, err)
		err = tg.armReturn(ctx, ra, nil)
	}
	if err != nil {
		tg.Engine.Logf("calls that return to %v get a return trampoline: %v", ra, err)
		tg.unpatchable[ra] = true
		return false
	}
	return true
}

// armReturn arms breakpoints at ra and at the places in list, also if ctx is done: otherwise the call's return address
// on the stack would be replaced.
func (tg *Target) armReturn(ctx context.Context, ra symbols.Addr, list []own) error {
	kept := list[:0:0]
	for _, x := range list {
		if st := tg.Sites[x.Site.Addr]; st != nil && st.Armed {
			st.serve(x)
			continue
		}
		kept = append(kept, x)
	}
	list = kept
	if st := tg.Sites[ra]; st != nil && st.Armed {
		st.lands = true
	} else {
		w, err := tg.placeOf(ra)
		if err != nil {
			return err
		}
		found, err := tg.proveStart(w)
		if err != nil {
			return err
		}
		list = append(list, own{Place: found})
	}
	return tg.change(context.WithoutCancel(ctx), &changeset{own: list})
}

// placeOf makes a Site of an address in a file's text. The error is errNoFile if no file is mapped
// there.
func (tg *Target) placeOf(a symbols.Addr) (symbols.Site, error) {
	m := tg.Space.ModuleAt(a)
	if m == nil {
		if err := tg.Space.Refresh(); err != nil {
			return symbols.Site{}, err
		}
		m = tg.Space.ModuleAt(a)
	}
	if m == nil || m.File == nil {
		return symbols.Site{}, errNoFile
	}
	w := symbols.Site{Addr: a, Module: m, Vaddr: m.Vaddr(a), Func: new(symbols.Func)}
	if name, off, _, _, ok := tg.Space.Symbolize(a); ok {
		w.Named = symbols.Place{Symbol: name, Offset: int64(off)}.String()
		w.Func.Symbol.Name = name
	}
	return w, nil
}

// callBefore finds the call instruction that ends at ra, if it can have a breakpoint.
func (tg *Target) callBefore(ra symbols.Addr) (assess.Place, bool) {
	w, err := tg.placeOf(ra - 1)
	if err != nil || tg.shadowStack {
		return assess.Place{}, false // with a shadow stack a copy's call returns to the copy
	}
	fn, ok := w.Module.File.FuncAt(w.Vaddr)
	if !ok || w.Module.File.IsGo() {
		return assess.Place{}, false
	}
	w.Func, w.Offset = &fn, uint64(w.Vaddr-fn.Start)
	f, err := tg.funcs.Of(w)
	if err != nil {
		return assess.Place{}, false
	}
	at, _ := f.Sweep.Around(uint64(ra))
	i, _, ok := f.Sweep.At(at)
	if !ok || !i.Flags.Has(insn.Call) || at+uint64(i.Len) != uint64(ra) {
		return assess.Place{}, false
	}
	if w, err = tg.placeOf(symbols.Addr(at)); err != nil {
		return assess.Place{}, false
	}
	w.Func, w.Offset = &fn, uint64(w.Vaddr-fn.Start)
	found, err := tg.prove(w)
	return found, err == nil
}

// leftBehind forgets the calls whose slots a call instruction is about to overwrite: they were
// abandoned. The session's context is filled.
func (s *Engine) leftBehind(tg *Target) {
	sp := s.regs.GPR[fetch.SP]
	s.done = tg.calls.Under(tg.Proc.PID(), sp, s.done)
	s.forget(tg)
}
