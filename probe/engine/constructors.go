package engine

import (
	"context"
	"errors"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// waitForBlock has a definition wait that names a thread-local variable of a library
// which is being loaded: its threads' blocks have no number yet when the loader says
// that the library is mapped. They do when its first constructor is called.
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
		return false // it was called, and that was no help
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
