package probe

import (
	"kprobe/fetch"
	"kprobe/probe/instances"
	"kprobe/symbols"
	"runtime"
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

// maxActive is the pool size of return probes that name none, the kernel's
// default for preemptible kernels (kernel/kprobes.c, register_kretprobe).
func (s *engine) maxActive() int {
	if s.opts.MaxActive > 0 {
		return min(s.opts.MaxActive, fetch.MaxActive)
	}
	return max(10, 2*runtime.NumCPU())
}
