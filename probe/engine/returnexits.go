package engine

import (
	"errors"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// exitReturns are returns that are seen where functions are left.
type exitReturns struct{ *planner.ExitWay }

func (exitReturns) inUse() bool { return true }

func (exitReturns) leave(st *stage, regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	return st.leaveDetour(regs, mem)
}

func (exitReturns) rollBack(tg *Target, at faulting) (v tracee.Verdict, done bool) {
	return tg.detourRolledBack(at)
}

// abandoned reports whether a call's thread is gone, or the program has used its slot
// anew, so that it can't come to an exit.
func (l exitReturns) abandoned(tg *Target, in detour.Instance, sps []uint64) bool {
	return !tg.UnderWay(l.ExitWay, in, sps)
}

// UnderWay reports whether a call may still come to an exit, as its slot says. sps
// are the stack pointers of all threads.
func (tg *Target) UnderWay(l *planner.ExitWay, in detour.Instance, sps []uint64) bool {
	slot := in.Slot
	if l.Calls.Go {
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
		// What a panic has left lies below the stack pointer, or the goroutine
		// has ended, and its stack pointer is where it began.
		if slot = hi - distance; sp >= lo && sp <= hi && slot < sp {
			return false
		}
	} else if in.TID != 0 && tg.Proc.Thread(tg.Feed.Numbers.Outside(in.TID)) == nil {
		return false
	} else if l.Calls.Common {
		return true // threads free their own, near the calls that need their rows
	}
	var word [8]byte
	_, err := tg.Proc.ReadMemory(word[:], symbols.Addr(slot))
	return errors.Is(err, symbols.ErrLatePage) || err == nil && le64(word[:]) == in.Return
}
