package probe

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/detour"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
)

// learn finds out what a plan of a change needs to know of the process that takes more
// than reading: where its threads have their numbers, and what its clock says.
func (tg *target) learn(c *changeset) error {
	if tg.s.opts.NoOptimize {
		return nil
	}
	jumps, clock := false, false
	for _, w := range c.requests(tg) {
		needs := !clock && detour.NeedsClock(w.p.prog)
		if (!jumps || needs) && w.trapsByKind() == "" && w.trapsByPlace() == "" {
			jumps, clock = true, clock || needs
		}
	}
	if !jumps {
		return nil
	}
	if err := tg.findParams(); err != nil || !clock {
		return err
	}
	return tg.feed.calibrate()
}

// findParams finds out how detours of the target reach what they need, once: its
// threads are stopped for it.
func (tg *target) findParams() error {
	if tg.params != nil {
		tg.params.NoSyscall = tg.params.NoSyscall || tracee.Filtered(tg.proc.PID())
		if !tg.params.Careful || tg.params.NoReads || !tg.params.NoSyscall {
			return nil
		}
		err := tg.proc.WithStopped(context.Background(), func(stopped []*tracee.Thread) error {
			tg.params.NoReads = judged(stopped)
			return nil
		})
		return tracee.IgnoreLate(err)
	}
	l := tg.area.File.Layout
	params := &detour.Params{
		PerCPU: uint64(tg.area.File.Addr(l.PerCPU.Off)), AreaShift: l.AreaShift, TallyOff: l.TallyOff(), CPUMask: l.CPUMask,
		RingSize: l.RingSize, Flags: uint64(tg.area.File.Addr(l.Flags.Off)),
		Clock: uint64(tg.area.File.Addr(l.Header.Off + ring.ClockOff)), Probes: uint64(tg.area.File.Addr(l.Header.Off + ring.ProbesOff)),
		Control: uint64(tg.area.File.Addr(l.Control.Off)), Kinds: uint64(tg.area.File.Addr(l.Kind(0))), Gate: uint64(tg.gate()),
		PID: tg.proc.PID(), Rdpid: procfs.CPUHas("rdpid"), FSGSBase: procfs.CPUHas("fsgsbase"),
		Nested: tg.feed.numbers != nil, NoSyscall: tracee.Filtered(tg.proc.PID()), NoProc: !ownProc(tg.proc.PID()), StackEnd: stackEndOf(tg.space.Mappings()),
	}
	var why string
	switch {
	case l.Spare:
		tg.bar("a trigger takes snapshots")
	case tg.s.opts.Detach:
		if why := tg.mayWatchBirths(); why != "" {
			tg.bar(why)
		}
	}
	err := tg.proc.WithStopped(context.Background(), func(stopped []*tracee.Thread) error {
		params.TID = findTID(tg.proc, stopped, tg.feed.numbers)
		if tg.s.standsAlone() {
			params.Overwrite, params.Spare, params.Alive = tg.s.opts.Detach, l.Spare, params.Gate+1
			params.Careful, params.NoReads = true, judged(stopped)
			params.Births = params.Gate + birthsOff
		}
		if tg.s.letsGo && params.NoReads {
			params.Careful, params.NoReads = false, false // it stays traced where memory is read
		}
		params.Rseq, why = tg.findSequences(stopped, params.TID)
		return nil
	})
	if err := tracee.IgnoreLate(err); err != nil {
		return err
	}
	tg.params, tg.renewal.filtered = params, params.NoSyscall
	tg.setSequences()
	how := "in restartable sequences"
	if params.Rseq == 0 {
		how = "by locked instructions: " + why
		tg.barred = why // what detours are made of stays
	}
	tg.s.logf("process %d: hits of jumps are counted and recorded %s", tg.proc.PID(), how)
	return nil
}

// judged reports whether rules of seccomp that threads are under may stand in the way of
// what detours ask the kernel by (detour.Params.Careful).
func judged(stopped []*tracee.Thread) bool {
	none, no, set := ^uint64(0), uint64(0), uint64(8)
	question := &tracee.Call{Number: unix.SYS_RT_SIGPROCMASK, Args: [6]*uint64{&none, nil, &no, &set}}
	return slices.ContainsFunc(stopped, func(t *tracee.Thread) bool { return !t.Allows(question, true) })
}
