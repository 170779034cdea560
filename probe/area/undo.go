package area

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
	"kprobe/probe/semaphore"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How kprobe leaves an address space
//
// There is one way, whether a session leaves, or a later kprobe recovers from one
// that was killed: the journal tells what was written and mapped. With all
// threads stopped, those of children that share the memory too:
//
//	restored  the text has the program's bytes, threads that stood between the
//	          two jumps of a patch or at a trap of kprobe's are where the program
//	          has an instruction
//	vacated   no thread is in kprobe's memory, no return address on a stack and
//	          no frame of a signal leads there
//	closed    the program has its signal actions back, the memory is unmapped,
//	          the memory file last
//
// A step begins only when the one before it has succeeded as a whole. Where a
// step fails the process is left as it is then, with everything that the step
// would have needed: what is in the text works without a tracer (the fallback
// signal handlers answer its traps), the memory stays mapped, and the journal
// keeps what is not undone. The header then says that no tracer lives, and the
// next kprobe goes on with it.

// Leave takes the area out of its address space. stopped are the stopped threads
// of its process, whose sharers are stopped here. After an error the area is as it
// was as far as it could not be undone.
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

// abandon has the memory file say that no tracer lives, so that the next kprobe takes
// out what it tells of.
func (a *Area) abandon() error {
	return a.File.Set64(a.File.Layout.Header.Off+ring.TracerStartOff, 0)
}

// Abandon has the probes stay for whoever comes next: nobody has them any more.
func (a *Area) Abandon() error { return a.abandon() }

// written lists the writes of the text that the journal knows.
func (a *Area) written() (list []*Write, err error) {
	sites, err := a.journalled()
	if err != nil {
		return nil, err
	}
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
	return list, nil
}

// RestoreText undoes the writes of the text that the journal tells, and lowers the
// semaphores that were raised; every thread is stopped. It may be called again.
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
	err = Restore(a.Proc, list, stopped)
	for _, w := range list {
		a.noteLifted(w)
	}
	if err != nil {
		return err
	}
	return semaphore.LowerAll(a.Proc, a.File)
}

// noteLifted remembers where bytes of kprobe's were, of which a thread may have
// a trap to be answered.
func (a *Area) noteLifted(w *Write) {
	if a.lifted == nil {
		a.lifted = map[uint64]bool{}
	}
	for at := w.At; at < w.End(); at++ {
		if w.lifted(at) {
			a.lifted[at] = true
		}
	}
}

// vacate takes threads, and what will lead threads, out of kprobe's memory once the
// text is restored; every thread is stopped. Without an error the memory may go.
func (a *Area) vacate(stopped []*tracee.Thread) error {
	var errs []error
	for _, t := range stopped {
		err := a.moveOut(t)
		if err == nil {
			err = t.EndSequence(a.holds)
		}
		if err == nil && (a.found || a.Unheld) && t.Interrupted(a.interrupted) {
			// Nobody has put signals off since the tracer's death, or meanwhile.
			err = &InterruptedError{TID: t.TID()}
		}
		errs = append(errs, err)
	}
	errs = append(errs, a.RestoreSlots(), a.RestoreReturns(), a.lateIn())
	return errors.Join(errs...)
}

// InterruptedError says that a handler of a signal has interrupted a thread in code of
// kprobe's, and will return there: the memory stays for it.
type InterruptedError struct{ TID int }

func (e *InterruptedError) Error() string {
	return fmt.Sprintf("a signal has interrupted thread %d in code of kprobe's", e.TID)
}

// mostMoves bounds how often a thread is led from one piece of kprobe's code to
// another: from a return trampoline to the one behind it.
const mostMoves = 1 << 12

// moveOut leads a stopped thread out of kprobe's code, to where the program has it,
// and answers its trap or fault if that was kprobe's.
func (a *Area) moveOut(t *tracee.Thread) error {
	now, err := t.Regs()
	if err != nil {
		return nil // gone
	}
	regs := *now
	trapped := t.AtTrap()
	if trapped {
		regs.Rip-- // the int3 has had no effect
		if a.lifted[regs.Rip] {
			return a.lead(t, &regs)
		}
	} else if a.lifted[regs.Rip] && t.DropFault(unix.SIGILL) {
		return nil // a guard: the program's instruction is there again
	}
	if !a.holds(symbols.Addr(regs.Rip)) {
		return nil
	}
	for range mostMoves {
		pc := symbols.Addr(regs.Rip)
		if !a.holds(pc) {
			return a.lead(t, &regs)
		}
		if a.Fallbacks.Holds(pc) {
			if !a.found && a.stepOut(t) {
				if now, err = t.Regs(); err != nil {
					return nil // gone
				}
				regs, trapped = *now, false
				continue
			}
			if !a.found {
				// It goes on to the program's own action by itself.
				to := a.Fallbacks.Look(pc)
				if to == pc {
					return nil
				}
				regs.Rip = uint64(to)
				if err := t.SetRegs(&regs); err != nil && !errors.Is(err, tracee.ErrGone) {
					return err
				}
				return nil
			}
			return fmt.Errorf("thread %d is in a signal handler of an earlier kprobe", t.TID())
		}
		out, err := a.behind(t, &regs, trapped)
		if err != nil {
			return err
		}
		if out.Rip == regs.Rip && out.Rsp == regs.Rsp {
			break
		}
		regs, trapped = *out, false
	}
	return fmt.Errorf("thread %d can't be moved out of kprobe's code", t.TID())
}

// mostInFallback bounds how many instructions of a fallback handler a thread executes.
const mostInFallback = 400

// stepOut has a stopped thread leave the fallback handler that it is in, and reports
// whether it could. Should the tracer be killed meanwhile, the thread's trap is answered.
func (a *Area) stepOut(t *tracee.Thread) bool {
	if r, err := t.Regs(); err == nil && r.Rdi != uint64(unix.SIGTRAP) { // else it may take the program's own for that
		at := a.File.Layout.Header.Off + memory.HeaderSteps
		a.File.Add64(at, 1)
		defer a.File.Add64(at, ^uint64(0))
	}
	return t.StepOut(a.Fallbacks.Holds, mostInFallback)
}

// lead has a thread go on elsewhere. A trap that it has met was kprobe's; a fault
// comes again, as its instruction does.
func (a *Area) lead(t *tracee.Thread, regs *unix.PtraceRegs) error {
	err := t.SetRegs(regs)
	if errors.Is(err, tracee.ErrGone) {
		return nil
	}
	if err != nil {
		return err // what it has met leads it on
	}
	if !t.DropTrap() {
		if sig, ok := t.Signal(); ok {
			t.DropFault(sig)
		}
	}
	t.CancelStep()
	return nil
}

// behind gives the registers that a thread in kprobe's code has where it goes on.
func (a *Area) behind(t *tracee.Thread, regs *unix.PtraceRegs, trapped bool) (*unix.PtraceRegs, error) {
	pc := symbols.Addr(regs.Rip)
	if cell, ok := a.cellOf(pc); ok {
		to, err := a.File.Get64(cell)
		out := *regs
		out.Rip = to
		return &out, err
	}
	if a.Outside != nil {
		out, inside, err := a.Outside(regs, trapped)
		if err != nil {
			return nil, fmt.Errorf("thread %d: %w", t.TID(), err)
		}
		if inside {
			return out, nil
		}
	}
	sites, err := a.journalled()
	if err != nil {
		return nil, err
	}
	for _, l := range sites {
		if symbols.Addr(l.Copy) == pc&^(memory.SlotSize-1) && l.Copy != 0 {
			return leaveCopyOf(&l, regs, a.Proc)
		}
	}
	return nil, fmt.Errorf("thread %d is in code that kprobe's journal doesn't know", t.TID())
}

// leaveCopyOf gives the registers that a thread in the copy of a breakpoint, of which only
// the journal is known, has where it goes on.
func leaveCopyOf(l *ring.Site, regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, error) {
	m, err := insn.Relocate(l.Before, l.Addr, l.Copy, insn.Options{})
	if err != nil {
		return nil, err
	}
	out, ok := AtPoint(m.Where(int(regs.Rip-l.Copy)), regs, mem)
	if !ok {
		return nil, fmt.Errorf("the copy of the instruction at %#x can't be left", l.Addr)
	}
	return out, nil
}

// holds reports whether pc is in memory that is about to go: in copies, detours,
// return trampolines, the fallback handlers, injected code.
func (a *Area) holds(pc symbols.Addr) bool {
	return a.IsCode(pc) || a.Fallbacks.Holds(pc)
}

// IsCode reports whether an address is in code that kprobe has mapped.
func (a *Area) IsCode(at symbols.Addr) bool {
	return a.Code.Holds(at) != nil || a.Scratch != nil && at >= a.Scratch.Start && at < a.Scratch.End()
}

// cellOf gives the cell, in the memory file, of the return trampoline that has an instruction
// at pc: int3; jmp [cell].
func (a *Area) cellOf(pc symbols.Addr) (cell int64, ok bool) {
	at := pc &^ (TrampolineSize - 1)
	if a.Code.Holds(at) == nil || pc-at > 1 {
		return 0, false
	}
	var b [TrampolineSize]byte
	if _, err := a.Proc.ReadMemory(b[:], at); err != nil || b[0] != memory.Int3 || b[1] != 0xff || b[2] != 0x25 || b[7] != memory.Int3 {
		return 0, false
	}
	cell = int64(at) + 7 + int64(int32(binary.LittleEndian.Uint32(b[3:]))) - int64(a.File.Base)
	first := a.File.Layout.Instances.Off
	ok = cell >= first && cell < first+min(MostTrampolines*cellSize, a.File.Layout.Instances.Size) && (cell-first)%cellSize == 0
	return cell, ok
}

// RestoreSlots puts the program's return addresses back where return trampolines of
// breakpoints stand in their place.
func (a *Area) RestoreSlots() error {
	cells := make([]byte, min(MostTrampolines*cellSize, a.File.Layout.Instances.Size))
	if _, err := a.File.ReadAt(cells, a.File.Layout.Instances.Off); err != nil {
		return fmt.Errorf("read the return trampolines of calls: %w", err)
	}
	for ; len(cells) >= cellSize; cells = cells[cellSize:] {
		slot := symbols.Addr(binary.LittleEndian.Uint64(cells[cellSlot:]))
		if slot == 0 {
			continue
		}
		if err := a.RestoreSlot(slot); err != nil {
			return err
		}
	}
	return nil
}

// RestoreSlot puts the program's return address back into a slot if it has a
// return trampoline's.
func (a *Area) RestoreSlot(slot symbols.Addr) error {
	var now [8]byte
	if _, err := a.Proc.ReadMemory(now[:], slot); errors.Is(err, symbols.ErrLatePage) {
		return fmt.Errorf("put a return address back: %w", err)
	} else if err != nil {
		return nil // the stack is gone
	}
	cell, ok := a.cellOf(symbols.Addr(binary.LittleEndian.Uint64(now[:])))
	if !ok {
		return nil
	}
	to, err := a.File.Get64(cell)
	if err == nil {
		err = a.Proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, to), slot)
	}
	if err != nil {
		return fmt.Errorf("put a return address back: %w", err)
	}
	return nil
}

// Bounds of what the list of return instances may say, which the program can
// write to: bytes of one piece, of all, and how many there are.
const (
	mostPool  = 1 << 30
	mostPools = 1 << 16
	allPools  = 4 << 30
)

// PoolsHead is what stands before the pools of a batch: u64 address of those
// of the batch before, u64 size.
const PoolsHead = 64

// RestoreReturns puts the program's return addresses back for calls that would
// return by return trampolines.
func (a *Area) RestoreReturns() error {
	first, err := a.File.Get64(a.File.Layout.Header.Off + memory.HeaderPools)
	if err != nil || first == 0 {
		return err
	}
	maps, err := symbols.ReadMaps(a.Proc.PID())
	if err != nil {
		return err
	}
	all, seen := uint64(0), map[symbols.Addr]bool{}
	for at := symbols.Addr(first); at != 0; {
		var head [16]byte
		if _, err := a.Proc.ReadOwn(head[:], at); err != nil {
			return fmt.Errorf("read return instances: %w", err)
		}
		size := binary.LittleEndian.Uint64(head[8:])
		if private, _ := memory.AnonymousIn(maps, at, size); size < PoolsHead || size > mostPool || !private ||
			seen[at] || len(seen) >= mostPools || all+size > allPools {
			return errors.New("return instances are not where the journal says")
		}
		seen[at] = true
		all += size
		mem := make([]byte, size)
		if _, err := a.Proc.ReadOwn(mem, at); err != nil {
			return fmt.Errorf("read return instances: %w", err)
		}
		left, late := detour.Left(mem[PoolsHead:], uint64(at)+PoolsHead, a.Proc)
		for _, in := range left {
			if err := a.Proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, in.Real), symbols.Addr(in.Slot)); err != nil {
				return fmt.Errorf("put a return address back: %w", err)
			}
		}
		if late != nil {
			return fmt.Errorf("put a return address back: %w", late)
		}
		at = symbols.Addr(binary.LittleEndian.Uint64(head[:]))
	}
	return nil
}

// lateIn finds a thread that could not be stopped and may run on in kprobe's code.
func (a *Area) lateIn() error {
	for _, t := range a.Proc.AllLate() {
		pc, ok := t.WaitsAt()
		if !ok {
			return fmt.Errorf("thread %d did not stop: the text is restored, kprobe's memory stays mapped", t.TID())
		}
		if a.holds(pc) {
			return fmt.Errorf("thread %d waits in the kernel, uninterruptibly, in code of kprobe's: the text is restored, kprobe's memory stays mapped", t.TID())
		}
	}
	return nil
}
