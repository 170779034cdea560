package fallbacks

import (
	"context"
	"errors"
	"syscall"

	"kprobe/probe/detour"
	"kprobe/probe/tracee"
)

// How the program's actions are changed and given back

// index finds the fallback handler that an action belongs to; -1: none. forced says that the kernel has reset the
// action, as it does when a thread raises a signal that it blocks. A reset leaves the restorer, by which
// the action is recognised (kernel/signal.c, force_sig_info_to_task).
func (n *Fallbacks) index(act detour.Action) (i int, forced bool) {
	for i, l := range n.labels {
		switch {
		case act.Handler == l.Handler:
			return i, false
		case act.Handler == 0 && act.Restorer == l.Restorer:
			return i, true
		}
	}
	return -1, false
}

// Catch sets a fallback handler for a signal, chained before the program's action. If the program has replaced
// the fallback handler since, the next one is chained before the new action. changed says that the
// action was changed. t is a stopped thread of the process or nil.
//
// The error is ErrNone, or that of an injected call.
func (n *Fallbacks) Catch(ctx context.Context, t *tracee.Thread, sig syscall.Signal) (changed bool, err error) {
	now, err := n.action(ctx, t, sig)
	if err != nil {
		return false, err
	}
	if i, forced := n.index(now); i >= 0 {
		if !forced || i >= len(n.caught[sig]) {
			return false, nil
		}
		_, err := n.swap(ctx, t, sig, n.labels[i].Action(n.caught[sig][i]))
		return true, err
	}
	known := len(n.caught[sig])
	i, err := n.lead(sig, now)
	if err != nil {
		return false, err
	}
	var old detour.Action
	if i == known {
		old, err = n.swapNoted(ctx, t, note{sig: sig, handler: i, act: n.labels[i].Action(now)})
	} else {
		old, err = n.swap(ctx, t, sig, n.labels[i].Action(now))
	}
	if err != nil || old == now {
		return true, err
	}
	// The program has set another action in between.
	if j, forced := n.index(old); j >= 0 && !forced {
		_, err = n.swap(ctx, t, sig, old)
		return true, err
	}
	n.caught[sig][i] = old
	return true, n.tell(i, sig, old)
}

// lead finds a fallback handler for an action: the one that leads to it, or an unused one. The error is ErrNone if
// all lead to others.
func (n *Fallbacks) lead(sig syscall.Signal, to detour.Action) (int, error) {
	list := n.caught[sig]
	for i := range list {
		if list[i] == to {
			return i, nil
		}
	}
	i := len(list)
	if i == Count {
		return 0, ErrNone
	}
	n.caught[sig] = append(list, to)
	return i, n.tell(i, sig, to)
}

// tell writes the action to which fallback handler i leads on a signal.
func (n *Fallbacks) tell(i int, sig syscall.Signal, act detour.Action) error {
	w := &writer{n.proc, n.data, nil}
	detour.FallbackData{W: w, Off: i * dataStride}.SetAction(int(sig), act)
	if w.err != nil {
		return w.err
	}
	return n.tellCaught(i)
}

// tellCaught writes which signals fallback handler i answers.
func (n *Fallbacks) tellCaught(i int) error {
	set := uint64(0)
	for s, list := range n.caught {
		if i < len(list) {
			set |= 1 << s
		}
	}
	w := &writer{n.proc, n.data, nil}
	detour.FallbackData{W: w, Off: i * dataStride}.SetCaught(set)
	return w.err
}

// Remove restores the program's actions. chained reports whether the program may still execute a fallback
// handler: a handler that the program has set later may call it, or a thread may be in it (Look). It is
// also true after an error. If kprobe is killed meanwhile, the next kprobe does the rest.
func (n *Fallbacks) Remove(ctx context.Context) (chained bool, err error) {
	defer func() { n.stays = chained }()
	if err := n.settle(); err != nil {
		return true, err
	}
	var errs []error
	chained = n.inUse || n.taken
	for sig, list := range n.caught {
		called, err := n.giveBack(ctx, sig, list)
		if err != nil {
			errs = append(errs, err)
		}
		chained = chained || called || err != nil
	}
	return chained, errors.Join(errs...)
}

// giveBack is Remove for one signal.
func (n *Fallbacks) giveBack(ctx context.Context, sig syscall.Signal, list []detour.Action) (chained bool, err error) {
	now, err := n.action(ctx, nil, sig)
	if err != nil {
		return true, err
	}
	i, forced := n.index(now)
	if i < 0 || i >= len(list) {
		return n.giveBackUnder(sig, list, now)
	}
	// After a reset the program's earlier handlers are not called any more, so no fallback handler is.
	chained = len(list) > 1 && !forced
	back, err := n.leadsTo(i, sig)
	if err != nil {
		return true, err
	}
	back = n.beyond(sig, back)
	if len(list) > 1 {
		_, err = n.swap(ctx, nil, sig, back)
		return chained, err
	}
	old, err := n.swapNoted(ctx, nil, note{sig: sig, handler: i, out: true, act: back})
	if err != nil {
		return true, err
	}
	if j, _ := n.index(old); j != i { // the program has set another action in between
		if _, err = n.swap(ctx, nil, sig, old); err == nil {
			err = n.clearNote()
		}
		return true, err
	}
	return chained, n.forget(sig, i)
}
