package probe

import (
	"kprobe/probe/instances"
	"kprobe/symbols"
)

// Calls that breakpoints follow (probe/instances).
type (
	instance = instances.Instance[*placed, any]
	pool     = instances.Pool[*placed, any]
	calls    = instances.Set[*placed, any]
	callKey  = instances.Key
)

func newPool(maxactive int) *pool {
	return instances.NewPool[*placed, any](maxactive)
}

func newCalls() *calls { return instances.NewSet[*placed, any]() }

// callAt gives the call that returns to an address by a return trampoline; nil: none
// does.
func (tg *target) callAt(ra symbols.Addr) *instance {
	i, ok := tg.area.Trampolines.At(ra)
	if !ok {
		return nil
	}
	return tg.calls.ByTrampoline(i)
}

// freeTrampoline takes a call's return trampoline back.
func (tg *target) freeTrampoline(in *instance) {
	tg.area.Trampolines.Release(in.Trampoline)
	tg.calls.Untrap(in)
}
