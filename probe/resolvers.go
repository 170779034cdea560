package probe

import (
	"context"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// IFUNCs of a new image
//
// An IFUNC's implementation is chosen by its resolver, later than files are mapped. Then
// a breakpoint on the resolver tells when, and its return tells what.

// watchResolver learns from an IFUNC's resolver, when the program calls it,
// what it chose, and arms what waits for it.
func (tg *target) watchResolver(ctx context.Context, resolver symbols.Addr) error {
	if tg.load.resolvers == nil {
		tg.load.resolvers = map[symbols.Addr]bool{}
	}
	if tg.load.resolvers[resolver] {
		return nil
	}
	tg.load.resolvers[resolver] = true
	var asked *hook
	asked, err := tg.hookAt(ctx, resolver, func(t *tracee.Thread) {
		regs, err := t.Regs()
		if err != nil {
			return
		}
		back, err := tg.word(symbols.Addr(regs.Rsp))
		if err != nil {
			return
		}
		sp := regs.Rsp + 8
		var answered *hook
		answered, err = tg.hookAt(tg.s.run, symbols.Addr(back), func(t *tracee.Thread) {
			regs, err := t.Regs()
			if err != nil || regs.Rsp != sp {
				return
			}
			tg.chosen[resolver] = symbols.Addr(regs.Rax)
			tg.unhook(asked)
			tg.unhook(answered)
			if err := tg.tryPending(tg.s.run); err != nil {
				tg.s.logf("after a resolver: %v", err)
			}
		})
		if err != nil {
			tg.s.logf("the resolver at %v can't be followed: %v", resolver, err)
		}
	})
	return err
}
