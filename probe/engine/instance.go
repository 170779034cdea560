package engine

import (
	"cmp"
	"runtime"

	"kprobe/fetch"
	"kprobe/probe/instances"
)

// Calls that breakpoints follow (probe/instances).
type (
	Instance = instances.Instance[*Placed, any]
	pool     = instances.Pool[*Placed, any]
	calls    = instances.Set[*Placed, any]
	callKey  = instances.Key
)

func newPool(maxactive int) *pool {
	return instances.NewPool[*Placed, any](maxactive)
}

func newCalls() *calls { return instances.NewSet[*Placed, any]() }

// freeTrampoline frees a call's return trampoline.
func (tg *Target) freeTrampoline(in *Instance) {
	tg.Area.Trampolines.Release(in.Trampoline)
	tg.calls.Untrap(in)
}

// maxActive is the size of the pool for return probes that name none. The default is that of
// preemptible kernels (kernel/kprobes.c, register_kretprobe).
func (s *Engine) maxActive() int {
	if n := cmp.Or(s.Opts.MaxActive, s.Opts.Active); n > 0 {
		return min(n, fetch.MaxActive)
	}
	return max(10, 2*runtime.NumCPU())
}
