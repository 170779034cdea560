package engine

import (
	"context"
	"errors"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// waitForBlock makes a definition wait if it names a thread-local variable of a library that is being
// loaded. When the loader reports the library as mapped, its thread-local blocks have no number yet.
// They have one when the library's first constructor is called, so kprobe has a breakpoint there. It
// reports whether the definition waits.
func (tg *Target) waitForBlock(ctx context.Context, p *pendingDef, err error) bool {
	if errors.Is(err, symbols.ErrNotMapped) {
		p.constructor = 0
	}
	if tg.loads() || !errors.Is(err, symbols.ErrNoTLS) {
		return false
	}
	places, err := tg.Space.Resolve(p.Def.Place)
	if err != nil || len(places) == 0 || places[0].Module == nil {
		return false
	}
	m := places[0].Module
	init, ok := m.File.Init()
	if !ok || p.constructor == m.Addr(init) {
		return false // the constructor was called, and the block still has no number
	}
	at := m.Addr(init)
	var called *hook
	called, err = tg.HookAt(ctx, at, func(*tracee.Thread) {
		tg.unhook(called)
		if err := tg.tryPending(tg.Engine.Run); err != nil {
			tg.Engine.Logf("at the constructor of %s: %v", m.Name, err)
		}
	})
	if err != nil {
		tg.Engine.Logf("the constructor of %s can't be watched: %v", m.Name, err)
		return false
	}
	p.constructor = at
	return true
}
