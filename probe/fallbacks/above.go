package fallbacks

import (
	"slices"
	"syscall"

	"kprobe/probe/detour"
	"kprobe/symbols"
)

// How fallback handlers go from under those of another kprobe
//
// Several kprobes may have probes in a process: those that were left alone have a memory file for each
// command that added some. Each has fallback handlers, and the later ones lead to the earlier ones. Who goes
// first isn't always who came last. So fallback handlers that others lead to are taken out of the middle: the
// others lead to what is below, and nothing stays of those that go.
//
//	seen      all threads are stopped, and it is known that none will continue in the handlers above (See)
//	led past  the handlers above lead to what is below
//	known     the fallback handler's data say that it can't be called (forget)

// See notes where a stopped thread continues, now or when a signal handler returns. It must have been called
// for each thread before Remove may take fallback handlers from under others; otherwise they stay.
func (n *Fallbacks) See(pcs ...symbols.Addr) {
	n.looked, n.seen = true, append(n.seen, pcs...)
}

// follow follows an action of a signal through the fallback handlers of other kprobes, up to one that is these'
// own or the program's. above are those of other kprobes.
func (n *Fallbacks) follow(sig syscall.Signal, act detour.Action) (end detour.Action, above []*Fallbacks, err error) {
	for range mostBeyond {
		if act.Handler <= 1 || n.Holds(symbols.Addr(act.Handler)) {
			break
		}
		code := symbols.Addr(act.Handler) &^ (Size - 1)
		of := &Fallbacks{proc: n.proc, code: code, data: code + Size}
		if !of.same() {
			break
		}
		i := of.handler(act)
		if i < 0 {
			break
		}
		above = append(above, of)
		if act, err = of.leadsTo(i, sig); err != nil {
			return act, above, err
		}
	}
	return act, above, nil
}

// handler is the number of the fallback handler that an action calls; -1: none.
func (n *Fallbacks) handler(act detour.Action) int {
	return slices.IndexFunc(n.labels[:], func(l detour.FallbackLabels) bool { return act.Handler == l.Handler })
}

// giveBackUnder is giveBack if another action is now.
func (n *Fallbacks) giveBackUnder(sig syscall.Signal, list []detour.Action, now detour.Action) (chained bool, err error) {
	end, above, err := n.follow(sig, now)
	if err != nil {
		return true, err
	}
	for _, of := range above {
		if past, err := n.leadPast(sig, of); !past || err != nil {
			return true, err
		}
	}
	if i := n.handler(end); i >= 0 && i < len(list) && len(list) == 1 {
		return false, n.forget(sig, i)
	}
	// SIG_DFL and SIG_IGN don't call a fallback handler. Any other handler may.
	return end.Handler > 1 || len(list) > 1, nil
}

// leadPast makes fallback handlers of another kprobe that lead to these on a signal lead to what is below. past
// says that none leads to these any more.
func (n *Fallbacks) leadPast(sig syscall.Signal, of *Fallbacks) (past bool, err error) {
	for j := range Count {
		to, err := of.leadsTo(j, sig)
		if err != nil {
			return false, err
		}
		i := n.handler(to)
		if i < 0 {
			continue
		}
		if !n.looked || slices.ContainsFunc(n.seen, of.Holds) {
			return false, nil
		}
		below, err := n.leadsTo(i, sig)
		if err != nil {
			return false, err
		}
		w := &writer{n.proc, of.data, nil}
		detour.FallbackData{W: w, Off: j * dataStride}.SetAction(int(sig), n.beyond(sig, below))
		if w.err != nil {
			return false, w.err
		}
	}
	return true, nil
}
