package engine

import (
	"cmp"

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

// defaultActive is how many calls a return probe that names no number follows at a time. The kernel's default,
// max(10, 2*CPUs), is too few for a function that calls itself, or that sleeps in many threads.
const defaultActive = 1024

// maxActive is the size of the pool for return probes that name none.
func (s *Engine) maxActive() int {
	return min(cmp.Or(s.Opts.MaxActive, s.Opts.Active, defaultActive), fetch.MaxActive)
}
