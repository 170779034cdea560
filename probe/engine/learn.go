package engine

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
)

// learn finds out what the plan of a change needs to know and what takes more than reading: the
// detours' parameters, for which threads are stopped, and the rate of the clock.
func (tg *Target) learn(ws []planner.Request) error {
	if tg.Engine.Opts.NoOptimize {
		return nil
	}
	jumps, clock := false, false
	for _, w := range ws {
		needs := !clock && detour.NeedsClock(w.P.Program)
		if (!jumps || needs) && w.TrapsByKind() == "" && w.TrapsByPlace() == "" {
			jumps, clock = true, clock || needs
		}
	}
	if !jumps {
		return nil
	}
	if err := tg.findParams(); err != nil || !clock {
		return err
	}
	return tg.Feed.calibrate()
}

// findParams sets the parameters of the target's detours, once. The threads are stopped for it. Later
// calls only check for seccomp rules.
func (tg *Target) findParams() error {
	if tg.Params != nil {
		tg.Params.NoSyscall = tg.Params.NoSyscall || tracee.Filtered(tg.Proc.PID())
		if !tg.Params.Careful || tg.Params.NoReads || !tg.Params.NoSyscall {
			return nil
		}
		err := tg.Proc.WithStopped(context.Background(), func(stopped []*tracee.Thread) error {
			tg.Params.NoReads = judged(stopped)
			return nil
		})
		return tracee.IgnoreLate(err)
	}
	l := tg.Area.File.Layout
	params := &detour.Params{
		PerCPU: uint64(tg.Area.File.Addr(l.PerCPU.Off)), AreaShift: l.AreaShift, TallyOff: l.TallyOff(), TakenOff: l.TakenOff(), CPUMask: l.CPUMask,
		RingSize: l.RingSize, Flags: uint64(tg.Area.File.Addr(l.Flags.Off)),
		Clock: uint64(tg.Area.File.Addr(l.Header.Off + ring.ClockOff)), Probes: uint64(tg.Area.File.Addr(l.Header.Off + ring.ProbesOff)),
		Control: uint64(tg.Area.File.Addr(l.Control.Off)), Kinds: uint64(tg.Area.File.Addr(l.Kind(0))), Gate: uint64(tg.gate()),
		PID: tg.Proc.PID(), Rdpid: procfs.CPUHas("rdpid"), FSGSBase: procfs.CPUHas("fsgsbase"),
		Nested: tg.Feed.Numbers != nil, NoSyscall: tracee.Filtered(tg.Proc.PID()), NoProc: !ownProc(tg.Proc.PID()), StackEnd: planner.StackEnd(tg.Space.Mappings()),
	}
	if err := tg.findHost(); err != nil {
		return err
	}
	var why string
	switch {
	case l.Spare:
		tg.bar("a trigger takes snapshots")
	case tg.Engine.Opts.Detach:
		if why := tg.mayWatchBirths(); why != "" {
			tg.bar(why)
		}
	}
	err := tg.Proc.WithStopped(context.Background(), func(stopped []*tracee.Thread) error {
		params.TID = findTID(tg.Proc, stopped, tg.Feed.Numbers)
		params.Stacks = stacksOf(stopped)
		if tg.Engine.standsAlone() {
			params.Overwrite, params.Spare, params.Alive = tg.Engine.Opts.Detach, l.Spare, params.Gate+1
			params.Careful, params.NoReads = true, judged(stopped)
			params.Births, params.Calls, params.Known = tg.words()
		}
		if tg.Engine.LetsGo && params.NoReads {
			params.Careful, params.NoReads = false, false // a process whose memory hits read stays traced
		}
		params.Rseq, why = tg.findSequences(stopped, params.TID)
		return nil
	})
	if err := tracee.IgnoreLate(err); err != nil {
		return err
	}
	tg.Params, tg.Renewal.Filtered = params, params.NoSyscall
	tg.SetSequences()
	how := "in restartable sequences"
	if params.Rseq == 0 {
		how = "by locked instructions: " + why
		tg.barred = why // for good: detours are built without sequences
	}
	tg.Engine.Logf("process %d: hits of jumps are counted and recorded %s", tg.Proc.PID(), how)
	return nil
}

// stacksOf are the stack pointers of stopped threads.
func stacksOf(stopped []*tracee.Thread) (out []uint64) {
	for _, t := range stopped {
		if regs, err := t.Regs(); err == nil { // otherwise it has ended
			out = append(out, regs.Rsp)
		}
	}
	return out
}

// judged reports whether seccomp rules of a thread may forbid the system call by which detours ask the
// kernel about memory (detour.Params.Careful).
func judged(stopped []*tracee.Thread) bool {
	none, no, set := ^uint64(0), uint64(0), uint64(8)
	question := &tracee.Call{Number: unix.SYS_RT_SIGPROCMASK, Args: [6]*uint64{&none, nil, &no, &set}}
	return slices.ContainsFunc(stopped, func(t *tracee.Thread) bool { return !t.Allows(question, true) })
}
