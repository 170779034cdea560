package probe

import (
	"kprobe/probe/instances"
	"kprobe/symbols"
)

// Calls that breakpoints follow (probe/instances).
type (
	instance = instances.Instance[*placed, *KretprobeInstance]
	pool     = instances.Pool[*placed, *KretprobeInstance]
	calls    = instances.Set[*placed, *KretprobeInstance]
	callKey  = instances.Key
)

func newPool(maxactive int) *pool {
	return instances.NewPool[*placed, *KretprobeInstance](maxactive)
}

func newCalls() *calls { return instances.NewSet[*placed, *KretprobeInstance]() }

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
