package probe

import (
	"context"
	"errors"
	"fmt"

	"kprobe/probe/tracee"
)

// Children in the same memory
//
// A child of vfork or posix_spawn runs in its parent's memory until it executes a
// program, one of clone(CLONE_VM) to its end. What is written into the parent's
// text it executes, so whoever needs the threads of a target to stand still
// needs theirs, too. Its hits are the parent's: its jumps write the parent's
// rings, and know no other number than that of the parent's thread.

// withStopped is Process.WithStopped of the target's process, with the threads
// of such children stopped, too, and given to fn.
func (tg *target) withStopped(ctx context.Context, fn func([]*tracee.Thread) error) error {
	return tg.proc.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		return withSharers(ctx, tg.proc, stopped, fn)
	})
}

// withSharers calls fn with the stopped threads of a process and of the children
// that share its memory, which are stopped for it. Threads of children that
// can't be stopped are among those of late.
func withSharers(ctx context.Context, p *tracee.Process, stopped []*tracee.Thread, fn func([]*tracee.Thread) error) error {
	for _, q := range p.Sharers() {
		err := q.StopAll(ctx)
		defer func() { _ = q.ResumeAll() }() // fails only for threads that are gone
		if err := ignoreLate(err); err != nil && !errors.Is(err, tracee.ErrGone) {
			return err
		}
		for _, t := range q.Threads() {
			if t.Stopped() {
				stopped = append(stopped, t)
			}
		}
	}
	return fn(stopped)
}

// allStopped reports whether the threads that are stopped are all that run in
// the target's memory.
func (tg *target) allStopped(stopped []*tracee.Thread) bool {
	n := len(tg.proc.Threads())
	for _, q := range tg.proc.Sharers() {
		n += len(q.Threads())
	}
	return len(stopped) == n
}

// late lists the threads in a process's memory that could not be stopped.
func late(p *tracee.Process) []*tracee.Thread {
	all := p.Late()
	for _, q := range p.Sharers() {
		all = append(all, q.Late()...)
	}
	return all
}

// lateUnder finds a thread that could not be stopped and may go on under a jump
// that is about to be written or taken out: one that waits there, or of which
// nobody knows where it is as it gets no processor.
func (tg *target) lateUnder(list []*patch) error {
	for _, t := range late(tg.proc) {
		pc, ok := t.WaitsAt()
		if !ok {
			return fmt.Errorf("thread %d could not be stopped: is the machine overloaded?", t.TID())
		}
		for _, p := range list {
			for q := p; q != nil; q = q.hole {
				if uint64(pc) > q.plan.At && uint64(pc) < q.plan.End() || uint64(pc) == q.plan.LongJump() {
					return fmt.Errorf("thread %d waits in the kernel, uninterruptibly, where a jump was to be", t.TID())
				}
			}
		}
	}
	return nil
}
