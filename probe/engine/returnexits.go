package engine

import (
	"errors"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// exitReturns is the returnWay of returns that are seen at the functions' exits.
type exitReturns struct{ *planner.ExitWay }

func (exitReturns) inUse() bool { return true }

func (exitReturns) leave(st stage, regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	return st.leaveDetour(regs, mem)
}

func (exitReturns) rollBack(tg *Target, at faulting) (v tracee.Verdict, done bool) {
	return tg.detourRolledBack(at)
}

// abandoned reports whether a call can't come to an exit any more: its thread has ended, or the
// program has overwritten its slot.
func (l exitReturns) abandoned(tg *Target, in detour.Instance, sps []uint64) bool {
	return !tg.UnderWay(l.ExitWay, in, sps)
}

// UnderWay reports whether a call may still come to an exit, by its thread and its slot. sps are
// the stack pointers of all threads. For a call in a common table only its thread counts.
func (tg *Target) UnderWay(l *planner.ExitWay, in detour.Instance, sps []uint64) bool {
	slot := in.Slot
	if l.Calls().Go {
		g, distance := detour.GoCall(slot)
		lo, hi, sp, err := detour.GoStack(tg.Proc, g)
		if err != nil || distance > hi-lo {
			return false
		}
		for _, x := range sps {
			if x >= lo && x < hi {
				sp = x
			}
		}
		// The slot of a call that a panic has left is below the stack pointer. So is every
		// slot if the goroutine has ended: its stack pointer is then where it began.
		if slot = hi - distance; sp >= lo && sp <= hi && slot < sp {
			return false
		}
	} else if in.TID != 0 && tg.Proc.Thread(tg.Feed.Numbers.Outside(in.TID)) == nil {
		return false
	} else if l.Calls().Common {
		return true // in a common table, threads free abandoned rows near the rows that they need
	}
	var word [8]byte
	_, err := tg.Proc.ReadMemory(word[:], symbols.Addr(slot))
	return errors.Is(err, symbols.ErrLatePage) || err == nil && le64(word[:]) == in.Return
}
