package area

import (
	"bytes"
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
	"kprobe/probe/semaphore"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How kprobe leaves an address space
//
// There is one way, whether a session leaves or a later kprobe recovers from one that was
// killed: the journal tells what was written and mapped. All threads are stopped, also those of
// children that share the memory. The steps:
//
//	restored  the text has the program's bytes. Threads that stood between the two jumps of a
//	          patch, or at a trap of kprobe's, are where the program has an instruction
//	vacated   no thread is in kprobe's memory, and no return address or signal frame on a
//	          stack leads there
//	closed    the program has its signal actions back. The memory is unmapped, the memory file
//	          last
//
// A step begins only after the one before has succeeded as a whole. If a step fails, the
// process is left as it is then, with everything that the step needs. What is in the text works
// without a tracer, because the fallback handlers answer its traps. The memory stays mapped,
// and the journal keeps what is not undone. The header then says that no tracer lives, and the
// next kprobe continues.

// Leave removes the area from its address space. stopped are the stopped threads of its
// process; Leave itself stops those of the processes that share the memory. After an error,
// whatever could not be undone is still in place.
func (a *Area) Leave(ctx context.Context, stopped []*tracee.Thread) error {
	err := a.Proc.WithSharers(ctx, stopped, func(stopped []*tracee.Thread) error {
		if err := a.unwatch(stopped); err != nil {
			return err
		}
		if err := a.RestoreText(stopped); err != nil {
			return err
		}
		// A fault that waits to be handled comes again, as its instruction does. Its
		// thread may be the only one that can make the calls that are to come.
		for _, t := range stopped {
			if sig, ok := t.Signal(); ok && sig != unix.SIGTRAP {
				t.DropFault(sig)
			}
		}
		return a.vacate(stopped)
	})
	if err == nil {
		// A thread may have to wait for its child before it can unmap.
		err = a.close(ctx)
	}
	if err != nil {
		a.Proc.KeepTrapsOpen() // an int3 may have to stay
		return errors.Join(err, a.abandon())
	}
	return nil
}

// abandon makes the memory file say that no tracer lives, so that the next kprobe removes what
// it lists.
func (a *Area) abandon() error {
	return a.File.Set64(a.File.Layout.Header.Off+ring.TracerStartOff, 0)
}

// Abandon leaves the probes to the next kprobe: nobody owns them any more.
func (a *Area) Abandon() error { return a.abandon() }

// written lists the text writes in the journal.
func (a *Area) written() (list []*Write, err error) {
	sites, err := a.journalled()
	if err != nil {
		return nil, err
	}
	return writesOf(sites), nil
}

// writesOf lists the text writes of sites.
func writesOf(sites []ring.Site) (list []*Write) {
	for _, l := range sites {
		before, after := l.Before, l.After
		if l.Tactic == uint16(plan.Breakpoint) && len(before) > 0 {
			// The entry holds the whole instruction, the change is a byte.
			before, after = before[:1], after[:1]
		}
		if bytes.Equal(before, after) {
			continue
		}
		w := &Write{Change: memory.Change{At: l.Addr, Old: after, New: before}}
		w.Leads = l.Tactic == uint16(plan.ShortJump) && w.short()
		list = append(list, w)
	}
	return list
}

// RestoreText undoes the text writes in the journal, and lowers the semaphores that were
// raised. Every thread must be stopped. It may be called again.
func (a *Area) RestoreText(stopped []*tracee.Thread) error {
	list, err := a.written()
	if err != nil {
		return err
	}
	if a.found || a.Unheld {
		if err := leadInterrupted(a.Proc, list, stopped); err != nil {
			return err
		}
	}
	if err := a.Lift(list, stopped); err != nil {
		return err
	}
	return semaphore.LowerAll(a.Proc, a.File)
}

// Lift undoes text writes for a session that is about to leave (Leave). Every thread must be stopped.
func (a *Area) Lift(list []*Write, stopped []*tracee.Thread) error {
	err := Restore(a.Proc, list, stopped)
	for _, w := range list {
		a.lifted.note(w)
	}
	return err
}

// SettleLifted prepares for the stop in which kprobe leaves, after Lift has undone thousands of writes before it.
func (a *Area) SettleLifted() { a.lifted.settle() }

// holds reports whether pc is in memory that is about to go: copies, detours, return
// trampolines, fallback handlers, injected code.
func (a *Area) holds(pc symbols.Addr) bool {
	return a.IsCode(pc) || a.Fallbacks.Holds(pc) || a.padding != 0 && inInjected(a.padding, pc)
}

// IsCode reports whether an address is in code that kprobe has mapped.
func (a *Area) IsCode(at symbols.Addr) bool {
	return a.Code.Holds(at) != nil || a.Scratch != nil && at >= a.Scratch.Start && at < a.Scratch.End()
}
