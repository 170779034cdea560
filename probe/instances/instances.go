// Package instances keeps the calls that return probes follow by breakpoints, from their entry
// to their return. Calls that detours follow are noted in the target's memory instead
// (detour.Pool, detour.Calls).
package instances

import (
	"iter"
	"slices"

	"kprobe/symbols"
)

// Instance is one call of a function that a return probe follows, from its
// entry to its return: the kernel's kretprobe_instance.
//
// A call is known by where its return address lies (Slot) and by where it will
// return to. Nothing is written to the program's stack unless the return
// address can't carry a breakpoint (Trampoline ≥ 0): so unwinders, exceptions,
// backtrace and longjmp see the stack as the program built it.
type Instance[P, U any] struct {
	Probe      P
	Pop        uint64 // what its function's return takes off the stack besides the address
	TID        int
	TGID       int
	Slot       symbols.Addr // where the return address lies
	Key        Key          // how its return is recognised
	Return     symbols.Addr // where it returns to
	Trampoline int          // index of the return trampoline that stands in Slot; -1: none
	Inside     bool         // it returns by its function's own returns
	Jumped     bool         // it was seen to leave its function by a jump
	Entry      []byte       // what the program captured at entry
	Time       uint64       // of the entry, CLOCK_MONOTONIC ns
	Pool       *Pool[P, U]
	next       *Instance[P, U] // free list
	place      int             // in Pool.active, plus 1; 0: it isn't in use
	User       U               // what its handlers keep of it
}

// Key recognises a call at its return: the stack pointer just after the
// return instruction, or for Go, whose stacks move, the goroutine and the
// distance from its stack's upper end.
type Key struct {
	PID int    // of the process: a child of vfork runs on its parent's stack
	G   uint64 // goroutine, 0 for everything but Go
	SP  uint64
}

// Pool holds the instances of one return probe at one place, at most Max of
// them in use, as the kernel's maxactive. It is used on the tracer thread
// only.
type Pool[P, U any] struct {
	Max    int
	free   *Instance[P, U]
	active []*Instance[P, U]
	// Of looks for calls that were left: misses to let go by before the next, and how many
	// that were after the last.
	patience, wait int
}

// NewPool makes a pool of so many instances.
func NewPool[P, U any](maxactive int) *Pool[P, U] {
	return &Pool[P, U]{Max: maxactive}
}

// Get takes an instance, or nil when all are in use (nmissed).
func (p *Pool[P, U]) Get() *Instance[P, U] {
	if len(p.active) >= p.Max {
		return nil
	}
	in := p.free
	if in != nil {
		p.free = in.next
	} else {
		in = new(Instance[P, U])
	}
	in.next, in.Pool, in.Trampoline, in.Inside, in.Jumped, in.Entry = nil, p, -1, false, false, in.Entry[:0]
	p.active = append(p.active, in)
	in.place = len(p.active)
	return in
}

// Put gives an instance back.
func (p *Pool[P, U]) Put(in *Instance[P, U]) {
	if in.place == 0 || in.Pool != p {
		return
	}
	last := len(p.active) - 1
	moved := p.active[last]
	p.active[in.place-1], moved.place = moved, in.place
	p.active[last] = nil
	p.active = p.active[:last]
	in.place = 0
	in.next = p.free
	p.free = in
}

// Active goes through the instances that are in use. They may be put back meanwhile: what then takes the place of
// one that is gone was there already.
func (p *Pool[P, U]) Active() iter.Seq[*Instance[P, U]] {
	return func(yield func(*Instance[P, U]) bool) {
		for i := len(p.active) - 1; i >= 0; i-- {
			if i < len(p.active) && !yield(p.active[i]) {
				return
			}
		}
	}
}

// InUse is how many that are.
func (p *Pool[P, U]) InUse() int { return len(p.active) }

// maxWait is how many misses go by at most between two looks at what the instances of an
// empty pool have on the stack.
const maxWait = 1023

// LookDue reports whether stacks are to be looked at for calls that were left, at a miss;
// found says that some were found without. Reading stacks costs a system call for each
// instance: while that finds nothing, as in a deep recursion, it is done ever less often.
func (p *Pool[P, U]) LookDue(found bool) bool {
	if found || p.patience > 0 {
		p.patience--
		return false
	}
	return true
}

// Looked notes whether a look has found calls that were left.
func (p *Pool[P, U]) Looked(found bool) {
	if found {
		p.wait = 0
	} else {
		p.wait = min(2*p.wait+1, maxWait)
	}
	p.patience = p.wait
}

// Set finds the instances of a process by their key; several share one when
// a probed function jumped to another instead of returning (a tail call). The
// order of a list is the order of entry.
type Set[P, U any] struct {
	byKey map[Key][]*Instance[P, U]
	spare [][]*Instance[P, U]
	// byTrampoline are those in whose slots a return trampoline stands, by its number.
	byTrampoline map[int]*Instance[P, U]
	pops         []uint64 // what the functions of all instances so far take off the stack
}

// NewSet makes a set of no instances.
func NewSet[P, U any]() *Set[P, U] {
	return &Set[P, U]{byKey: map[Key][]*Instance[P, U]{}, byTrampoline: map[int]*Instance[P, U]{}}
}

// Trap notes that a return trampoline stands in a call's slot.
func (c *Set[P, U]) Trap(in *Instance[P, U], i int) {
	in.Trampoline = i
	c.byTrampoline[i] = in
}

// ByTrampoline gives the call in whose slot a return trampoline stands, by its number; nil:
// none is.
func (c *Set[P, U]) ByTrampoline(i int) *Instance[P, U] { return c.byTrampoline[i] }

// Untrap notes that no return trampoline stands in a call's slot any more.
func (c *Set[P, U]) Untrap(in *Instance[P, U]) {
	delete(c.byTrampoline, in.Trampoline)
	in.Trampoline = -1
}

// All goes through the instances, in no order but that of entry of those with one key.
func (c *Set[P, U]) All(yield func(*Instance[P, U]) bool) {
	for _, list := range c.byKey {
		for _, in := range list {
			if !yield(in) {
				return
			}
		}
	}
}

// Leave removes the instances with a key that were abandoned (longjmp, an exception) before the stack grew to the same
// place again, and returns them, the first entered first. Others with that key have left their functions by tail calls
// and are still to return. stale is asked from the first entered on: the first that is stale goes, with all that were
// entered after it. The result is valid until the next call of any method.
func (c *Set[P, U]) Leave(k Key, stale func(old *Instance[P, U]) bool, into []*Instance[P, U]) []*Instance[P, U] {
	into = into[:0]
	list := c.byKey[k]
	i := slices.IndexFunc(list, stale)
	if i < 0 {
		return into
	}
	into = append(into, list[i:]...)
	c.set(k, list[:i])
	return into
}

// Add adds an instance to those with its key, as the last that was entered.
func (c *Set[P, U]) Add(in *Instance[P, U]) {
	list, ok := c.byKey[in.Key]
	if !ok && len(c.spare) > 0 {
		list = c.spare[len(c.spare)-1]
		c.spare = c.spare[:len(c.spare)-1]
	}
	c.byKey[in.Key] = append(list, in)
	if !slices.Contains(c.pops, in.Pop) {
		c.pops = append(c.pops, in.Pop)
	}
}

// With goes through the instances with a key, the first entered first.
func (c *Set[P, U]) With(k Key) iter.Seq[*Instance[P, U]] { return slices.Values(c.byKey[k]) }

// Take removes and returns the instances with that key that ok accepts, the
// last entered first. The result is valid until the next call of any method.
func (c *Set[P, U]) Take(k Key, ok func(*Instance[P, U]) bool, into []*Instance[P, U]) []*Instance[P, U] {
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

// Of lists the calls that a thread has made.
func (c *Set[P, U]) Of(tid int) (out []*Instance[P, U]) {
	for _, list := range c.byKey {
		for _, in := range list {
			if in.TID == tid {
				out = append(out, in)
			}
		}
	}
	return out
}

// Drop removes one instance, wherever it stands in its list.
func (c *Set[P, U]) Drop(in *Instance[P, U]) {
	list := c.byKey[in.Key]
	for i, x := range list {
		if x == in {
			c.set(in.Key, append(list[:i], list[i+1:]...))
			break
		}
	}
	in.Pool.Put(in)
}

func (c *Set[P, U]) set(k Key, list []*Instance[P, U]) {
	if len(list) > 0 {
		c.byKey[k] = list
		return
	}
	delete(c.byKey, k)
	if list != nil && len(c.spare) < 64 {
		c.spare = append(c.spare, list)
	}
}

// Under removes and returns the instances of a process whose slot is the word below
// the stack pointer. The result is valid until the next call of any method.
func (c *Set[P, U]) Under(pid int, sp uint64, into []*Instance[P, U]) []*Instance[P, U] {
	into = into[:0]
	for _, pop := range c.pops {
		k := Key{PID: pid, SP: sp + pop}
		c.set(k, slices.DeleteFunc(c.byKey[k], func(in *Instance[P, U]) bool {
			if uint64(in.Slot)+8 != sp {
				return false
			}
			into = append(into, in)
			return true
		}))
	}
	return into
}
