package engine

import (
	"context"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// IFUNCs of a new image
//
// An IFUNC's resolver chooses the implementation, some time after the file was mapped. kprobe has a
// breakpoint on the resolver. When the program calls it, kprobe writes another one at the return
// address, where %rax has the implementation.

// watchResolver learns the implementation from an IFUNC's resolver when the program calls it, and then
// arms the definitions that wait for it.
func (tg *Target) watchResolver(ctx context.Context, resolver symbols.Addr) error {
	if tg.Load.resolvers == nil {
		tg.Load.resolvers = map[symbols.Addr]bool{}
	}
	if tg.Load.resolvers[resolver] {
		return nil
	}
	tg.Load.resolvers[resolver] = true
	var asked *hook
	asked, err := tg.HookAt(ctx, resolver, func(t *tracee.Thread) {
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
		answered, err = tg.HookAt(tg.Engine.Run, symbols.Addr(back), func(t *tracee.Thread) {
			regs, err := t.Regs()
			if err != nil || regs.Rsp != sp {
				return
			}
			tg.chosen[resolver] = symbols.Addr(regs.Rax)
			tg.unhook(asked)
			tg.unhook(answered)
			if err := tg.tryPending(tg.Engine.Run); err != nil {
				tg.Engine.Logf("after a resolver: %v", err)
			}
		})
		if err != nil {
			tg.Engine.Logf("the resolver at %v can't be followed: %v", resolver, err)
		}
	})
	return err
}
