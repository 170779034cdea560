package area

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How single events of detached probes go
//
// If some probes of a memory file go and others stay, the file and the code stay mapped, and only places in
// the text are given back. The journal says which of its sites belong together (ring.Site.Group). A group
// goes through these states:
//
//	hidden    none of its probes is listed (ring.Hide): no hit is taken any more
//	restored  the text has the program's bytes, in the process and in those that it has forked, which have
//	          copies of the jumps and share the journal. Semaphores that were raised for its probes, and that no
//	          other enabled probe of the file needs, are lowered (semaphores.go)
//	left      each thread was seen outside of kprobe's code since, and no signal handler will return there.
//	          So nothing will come back from the code to what follows the place
//	free      the journal has no entry for it: anybody may change the place
//
// A kprobe that is killed leaves a group in one of these states. The next kprobe that looks after the process
// finds that the group has no probe, and begins again: what is restored already isn't changed. If a state can't
// be reached, because a handler doesn't return or somebody traces a forked process, the group stays
// as it is, and new probes are refused there until the next attempt.

// PendingError says that places of removed probes could not be given back yet.
type PendingError struct{ Why string }

func (e *PendingError) Error() string {
	return fmt.Sprintf("the probes are removed, but their places aren't free yet: %s", e.Why)
}

// abandoned lists the sites of which no probe is left.
func abandoned(s *ring.Snapshot, sites []ring.Site) (out []ring.Site) {
	used := map[uint32]bool{0: true}
	for i := range s.Probes {
		used[s.Probes[i].Group] = true
	}
	for _, x := range sites {
		if !used[x.Group] {
			out = append(out, x)
		}
	}
	return out
}

// readAbandoned lists the sites of a memory file of which no probe is left.
func readAbandoned(r io.ReaderAt) ([]ring.Site, error) {
	s, err := ring.ReadSnapshot(r, memory.PossibleCPUs())
	if err != nil {
		return nil, err
	}
	sites, err := ring.ReadSites(r, &s.Header, s.Layout)
	return abandoned(s, sites), err
}

// hasAbandoned reports whether the detached probes of a memory file have sites of which no probe is left, or semaphores
// that no probe needs.
func hasAbandoned(pid int, m *symbols.Mapping) bool {
	has, err := untrusted.Within(func() (bool, error) {
		mem, err := memory.OpenProcess(pid)
		if err != nil {
			return false, err
		}
		defer mem.Close()
		file := memory.Window{Mem: mem, At: m.Start}
		if list, err := readAbandoned(file); err != nil || len(list) > 0 {
			return err == nil, err
		}
		idle, _, err := semaphoresDue(pid, mem, file)
		return idle, err
	})
	return err == nil && has
}

// prune gives the places back of which no probe is left. start is as in recoverFile.
func prune(ctx context.Context, tr *tracee.Tracer, pid int, start uint64, m *symbols.Mapping) error {
	x := &pruning{start: start, inode: m.Inode, at: m.Start}
	return x.run(ctx, tr, pid, m)
}

// run does it in a process, and then in those that have copies of its memory.
func (x *pruning) run(ctx context.Context, tr *tracee.Tracer, pid int, m *symbols.Mapping) (err error) {
	p, err := tr.Attach(ctx, pid)
	if err != nil {
		return err
	}
	err = x.process(ctx, p, m)
	for pid := range x.others(p.PID(), &err) {
		kid, kerr := tr.Attach(ctx, pid)
		if kerr == nil {
			kerr = x.process(ctx, kid, m)
			kerr = errors.Join(kerr, kid.Detach(ctx, nil))
		}
		if kerr != nil && len(x.sites) > 0 && !hasEnded(kerr) {
			err = errors.Join(err, &PendingError{fmt.Sprintf("process %d has a copy of them: %v", pid, kerr)})
		}
	}
	if err == nil && x.file != nil && !x.semaphores {
		err = x.forget()
	}
	return errors.Join(err, p.Detach(ctx, nil))
}

// pruning is the giving back of places of one memory file.
type pruning struct {
	start uint64 // when the process began; 0: any
	inode uint64 // of the memory file
	at    symbols.Addr
	file  *memory.File // through the process; nil: there is nothing to give back
	sites []ring.Site

	semaphores bool // only semaphores are changed: no place is given back
	raises     bool // those that are needed are raised
}

// others yields the processes, except pid, that have copies of its memory with the memory file. Those that are forked
// meanwhile are among them: whoever has forked them was there when the processes were listed.
func (x *pruning) others(pid int, failed *error) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		known := map[int]uint64{pid: procfs.StartTime(pid)}
		for more := *failed == nil && x.file != nil && !x.raises; more; {
			all, err := procfs.Processes()
			if err != nil {
				*failed = err
				return
			}
			more = false
			for _, other := range all {
				began := procfs.StartTime(other)
				if at, is := known[other]; is && at == began {
					continue
				}
				files, err := FindMemfiles(other)
				is := func(f *symbols.Mapping) bool { return f.Inode == x.inode && f.Start == x.at }
				if len(x.sites) > 0 && errors.Is(err, symbols.ErrPermission) && descends(pid, other) {
					*failed = &PendingError{fmt.Sprintf("process %d may have a copy of them, and can't be looked at", other)}
					return
				}
				if err != nil || !slices.ContainsFunc(files, is) {
					continue
				}
				if known[other], more = began, true; !tracee.SameMemory(pid, other) && !yield(other) {
					return
				}
			}
		}
	}
}

// descends reports whether a process descends from pid.
func descends(pid, other int) bool {
	kids := procfs.Process(pid).AllChildren()
	return slices.Contains(kids, other) || slices.ContainsFunc(kids, func(kid int) bool { return descends(kid, other) })
}

// process brings the sites in one process to the state "left".
func (x *pruning) process(ctx context.Context, p *tracee.Process, m *symbols.Mapping) error {
	var a *Area
	err := p.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		if x.file == nil && x.start != 0 && !procfs.Runs(p.PID(), x.start) || !hasFile(p.PID(), m) || !leftAlone(p.PID(), m) {
			return nil
		}
		var err error
		if a, err = Open(p, m, nil); err != nil || a == nil {
			return err
		}
		first := x.file == nil
		if first && !x.semaphores {
			if x.sites, err = readAbandoned(a.File); err != nil {
				return err
			}
		}
		if first {
			x.file = a.File
		}
		return p.WithSharers(ctx, stopped, func(stopped []*tracee.Thread) error {
			list := writesOf(x.sites)
			if err := leadInterrupted(p, list, stopped); err != nil {
				return err
			}
			if err := a.Lift(list, stopped); err != nil {
				return err
			}
			err := a.lowerIdle()
			if first && x.raises {
				err = errors.Join(err, a.raiseNeeded())
			}
			return err
		})
	})
	if err = tracee.IgnoreLate(err); err != nil || a == nil || len(x.sites) == 0 {
		return err
	}
	return a.awaitLeft(ctx)
}

// awaitLeft waits until each thread was seen outside of kprobe's code. Threads may come there again meanwhile,
// by probes that stay.
func (a *Area) awaitLeft(ctx context.Context) error {
	outside := map[int]bool{}
	inside := 0
	for length := range Moments() {
		inside = 0
		look := func(tid int, out bool) {
			if out {
				outside[tid] = true
			} else if !outside[tid] {
				inside = tid
			}
		}
		err := a.Proc.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			return a.Proc.WithSharers(ctx, stopped, func(stopped []*tracee.Thread) error {
				for _, t := range stopped {
					out, err := a.outside(t)
					if err != nil {
						return err
					}
					look(t.TID(), out)
				}
				for _, t := range a.Proc.AllLate() {
					pc, known := t.WaitsAt()
					look(t.TID(), known && !a.holds(pc))
				}
				return nil
			})
		})
		if err = tracee.IgnoreLate(err); err != nil || inside == 0 {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		runOn(ctx, a.Proc.Tracer(), length)
	}
	return &PendingError{fmt.Sprintf("thread %d may still run in their code", inside)}
}

// outside reports whether a stopped thread is outside of kprobe's code and won't return there. It answers a trap
// at a place that was restored.
func (a *Area) outside(t *tracee.Thread) (bool, error) {
	regs, err := t.Regs()
	if err != nil {
		return true, nil // gone
	}
	if _, err := a.answerLifted(t, regs); err != nil {
		return false, err
	}
	if regs, err = t.Regs(); err != nil {
		return true, nil
	}
	pc := symbols.Addr(regs.Rip)
	return !a.holds(pc) && !t.Interrupted(a.interrupted), nil
}

// forget removes the sites from the journal.
func (x *pruning) forget() error {
	for i := range x.sites {
		if err := x.file.Set64(x.file.Layout.Site(x.sites[i].Entry), 0); err != nil {
			return err
		}
	}
	return nil
}
