package probe

import (
	"slices"

	"kprobe/symbols"
)

// instance is one call of a function that a return probe follows, from its
// entry to its return: the kernel's kretprobe_instance.
//
// A call is known by where its return address lies (slot) and by where it will
// return to. Nothing is written to the program's stack unless the return
// address can't carry a breakpoint (return trampoline ≥ 0): so unwinders, exceptions,
// backtrace and longjmp see the stack as the program built it.
type instance struct {
	probe      *placed
	tid        int
	tgid       int
	slot       symbols.Addr // where the return address lies
	key        callKey      // how its return is recognised
	ra         symbols.Addr // where it returns to
	trampoline int          // index of the return trampoline that stands in slot; -1: none
	inside     bool         // it returns by its function's own returns (returnwatch.go)
	entry      []byte       // what the program captured at entry
	time       uint64       // of the entry, CLOCK_MONOTONIC ns
	pool       *pool
	next       *instance          // free list
	user       *KretprobeInstance // of a Kretprobe with handlers
}

// callKey recognises a call at its return: the stack pointer just after the
// return instruction, or for Go, whose stacks move, the goroutine and the
// distance from its stack's upper end.
type callKey struct {
	pid int    // of the process: a child of vfork runs on its parent's stack
	g   uint64 // goroutine, 0 for everything but Go
	sp  uint64
}

// pool holds the instances of one return probe at one place, at most max of
// them in use, as the kernel's maxactive. It is used on the tracer thread
// only.
type pool struct {
	max    int
	used   int
	free   *instance
	active map[*instance]struct{}
	// Of reclaim: misses to let go by before the next look at stacks, and how
	// many that were after the last.
	patience, wait int
}

func newPool(maxactive int) *pool {
	return &pool{max: maxactive}
}

// get takes an instance, or nil when all are in use (nmissed).
func (p *pool) get() *instance {
	if p.used >= p.max {
		return nil
	}
	p.used++
	in := p.free
	if in != nil {
		p.free = in.next
	} else {
		in = new(instance)
	}
	in.next, in.pool, in.trampoline, in.inside, in.entry = nil, p, -1, false, in.entry[:0]
	if p.active == nil {
		p.active = make(map[*instance]struct{}, min(p.max, 64))
	}
	p.active[in] = struct{}{}
	return in
}

// put gives an instance back.
func (p *pool) put(in *instance) {
	if _, ok := p.active[in]; !ok {
		return
	}
	delete(p.active, in)
	p.used--
	in.next = p.free
	p.free = in
}

// calls finds the instances of a process by their key; several share one when
// a probed function jumped to another instead of returning (a tail call). The
// order of a list is the order of entry.
type calls struct {
	byKey map[callKey][]*instance
	spare [][]*instance
	// byTrampoline are those in whose slots a return trampoline stands, by its number.
	byTrampoline map[int]*instance
	pops         []uint64 // what the functions of all instances so far take off the stack
}

func newCalls() *calls {
	return &calls{byKey: map[callKey][]*instance{}, byTrampoline: map[int]*instance{}}
}

// trap notes that a return trampoline stands in a call's slot.
func (c *calls) trap(in *instance, i int) {
	in.trampoline = i
	c.byTrampoline[i] = in
}

// callAt gives the call that returns to an address by a return trampoline; nil: none
// does.
func (tg *target) callAt(ra symbols.Addr) *instance {
	i, ok := tg.area.Trampolines.At(ra)
	if !ok {
		return nil
	}
	return tg.calls.byTrampoline[i]
}

// freeTrampoline takes a call's return trampoline back.
func (tg *target) freeTrampoline(in *instance) {
	tg.area.Trampolines.Release(in.trampoline)
	delete(tg.calls.byTrampoline, in.trampoline)
	in.trampoline = -1
}

// enter adds an instance. Instances with the same key were either left by
// tail calls and are still to return with this one, or were abandoned
// (longjmp, an exception) before the stack grew to the same place again.
// stale tells which; the stale ones go back to their pools, with all that
// were entered after them.
func (c *calls) enter(in *instance, stale func(old *instance) bool) {
	list, ok := c.byKey[in.key]
	if !ok && len(c.spare) > 0 {
		list = c.spare[len(c.spare)-1]
		c.spare = c.spare[:len(c.spare)-1]
	}
	for i, old := range list {
		if stale(old) {
			for _, dead := range list[i:] {
				dead.pool.put(dead)
			}
			list = list[:i]
			break
		}
	}
	c.byKey[in.key] = list
	c.add(in)
}

// add adds an instance to those with its key, as the last that was entered.
func (c *calls) add(in *instance) {
	c.byKey[in.key] = append(c.byKey[in.key], in)
	if !slices.Contains(c.pops, in.probe.pop) {
		c.pops = append(c.pops, in.probe.pop)
	}
}

// take removes and returns the instances with that key that ok accepts, the
// last entered first. The result is valid until the next call of any method.
func (c *calls) take(k callKey, ok func(*instance) bool, into []*instance) []*instance {
	list := c.byKey[k]
	keep := list[:0]
	into = into[:0]
	for i := len(list) - 1; i >= 0; i-- {
		if ok(list[i]) {
			into = append(into, list[i])
		}
	}
	if len(into) == 0 {
		return into
	}
	for _, in := range list {
		if !ok(in) {
			keep = append(keep, in)
		}
	}
	c.set(k, keep)
	return into
}

// of lists the calls that a thread has made.
func (c *calls) of(tid int) (out []*instance) {
	for _, list := range c.byKey {
		for _, in := range list {
			if in.tid == tid {
				out = append(out, in)
			}
		}
	}
	return out
}

// drop removes one instance, wherever it stands in its list.
func (c *calls) drop(in *instance) {
	list := c.byKey[in.key]
	for i, x := range list {
		if x == in {
			c.set(in.key, append(list[:i], list[i+1:]...))
			break
		}
	}
	in.pool.put(in)
}

func (c *calls) set(k callKey, list []*instance) {
	if len(list) > 0 {
		c.byKey[k] = list
		return
	}
	delete(c.byKey, k)
	if list != nil && len(c.spare) < 64 {
		c.spare = append(c.spare, list)
	}
}
