package area

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"syscall"
	"time"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Recover removes the probes of a killed kprobe from processes: breakpoints, return
// trampolines, the fallback handler, mapped memory. It also cleans processes that these have
// forked since, with copies of it all. Probes that were left alone on purpose (Session.Detach)
// stay; where some of them were removed, their places in the text are given back (prune.go). It returns the processes in which it found something. A process that is still traced,
// by that kprobe or another, is left alone, with an error. A process that is gone is no error.
func Recover(ctx context.Context, pids []int) (recovered []int, err error) {
	return RecoverAll(ctx, pids, nil)
}

// Chosen are memory files of a process that are removed although their probes were left alone.
type Chosen struct {
	Start uint64                // when the process began (procfs.StartTime): another may have got its number since; 0: any
	Files map[symbols.Addr]bool // by where they are mapped
	// Pending is filled in with why places of removed probes are not free yet (PendingError.Why).
	Pending []string
}

// start is when the process began.
func (c *Chosen) start() uint64 {
	if c == nil {
		return 0
	}
	return c.Start
}

// copied chooses the same files in forked processes, which have begun at other times.
func (c *Chosen) copied() *Chosen {
	if c == nil {
		return nil
	}
	return &Chosen{Files: c.Files}
}

// hasEnded reports whether an error says that the process has ended, so that nothing of it is left: a child may end
// between the look at its memory and the attachment, and wait for its parent then.
func hasEnded(err error) bool {
	return errors.Is(err, tracee.ErrGone) || errors.Is(err, tracee.ErrZombie) || errors.Is(err, symbols.ErrGone)
}

// pending notes why places can't be given back. It returns errors that nobody asks Chosen for.
func (c *Chosen) pending(err error) error {
	if err == nil || hasEnded(err) {
		return err
	}
	var waits *PendingError
	if !errors.As(err, &waits) {
		waits = &PendingError{err.Error()}
		err = waits
	}
	if c == nil {
		return err
	}
	if !slices.Contains(c.Pending, waits.Why) {
		c.Pending = append(c.Pending, waits.Why)
	}
	return nil
}

// some reports whether memory files are chosen.
func (c *Chosen) some() bool { return c != nil && len(c.Files) > 0 }

// has reports whether the memory file that is mapped at an address is chosen. Nothing is, of a nil Chosen.
func (c *Chosen) has(at symbols.Addr) bool { return c != nil && c.Files[at] }

// RecoverAll is Recover, but also removes probes that were left alone, of the memory files that
// also names.
func RecoverAll(ctx context.Context, pids []int, also *Chosen) (recovered []int, err error) {
	tr, err := tracee.New()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tr.Close()) }()
	return RecoverWith(ctx, tr, pids, also)
}

// RecoverWith is RecoverAll with a tracer that does nothing else.
func RecoverWith(ctx context.Context, tr *tracee.Tracer, pids []int, also *Chosen) (recovered []int, err error) {
	if err := tr.Handle(passing{}); err != nil {
		return nil, err
	}
	var errs []error
	one := func(pid int, known journals, also *Chosen) (found bool) {
		found, err := recoverOne(ctx, tr, pid, known, also)
		if found {
			recovered = append(recovered, pid)
		}
		if err != nil && !hasEnded(err) {
			errs = append(errs, fmt.Errorf("process %d: %w", pid, err))
		}
		return found
	}
	for _, pid := range pids {
		known := mapped(pid)
		found := one(pid, nil, also)
		m, err := FindMemfile(pid)
		gone := errors.Is(err, symbols.ErrGone)
		if m != nil && found && also.some() {
			// Others of its memory files stay. What the removed ones have said is known only now.
			for _, kid := range leftChildren(pid) {
				one(kid, known, also.copied())
			}
		}
		if m != nil || err != nil && !gone {
			continue // it must stay: on purpose, for a thread, or for a child that runs in the same memory
		}
		kids := leftChildren(pid)
		if found || gone {
			kids = append(kids, orphans(pid, kids)...)
		}
		if known == nil && len(kids) > 0 {
			known = mapped(kids[0]) // the children share the files, which are empty once one of them was recovered
		}
		for _, kid := range kids {
			one(kid, known, also.copied())
		}
	}
	return recovered, errors.Join(errs...)
}

// mapped is journaled; nil if the read takes too long.
func mapped(pid int) journals {
	known, _ := untrusted.Within(func() (journals, error) { return journaled(pid), nil })
	return known
}

// recoverOne recovers a process. known is what may be there in addition to what its memory files list. Of memory files that were left alone it removes those in also.
func recoverOne(ctx context.Context, tr *tracee.Tracer, pid int, known journals, also *Chosen) (found bool, err error) {
	found, err = recoverFiles(ctx, tr, pid, known, also)
	if err != nil {
		return found, err
	}
	more, err := recoverStrays(ctx, tr, pid)
	if err != nil || !more {
		return found || more, err
	}
	// The call that a thread was in when kprobe was killed may have mapped the memory file since.
	_, err = recoverFiles(ctx, tr, pid, known, nil)
	return true, err
}

// recoverFiles is recoverOne for what memory files list.
func recoverFiles(ctx context.Context, tr *tracee.Tracer, pid int, known journals, also *Chosen) (found bool, err error) {
	files, err := FindMemfiles(pid)
	if err != nil {
		return false, err
	}
	guestsFirst(pid, files)
	var errs []error
	for _, m := range files {
		start := uint64(0)
		if also.has(m.Start) || leftAlone(pid, m) && emptied(pid, m) && !needed(pid, m) {
			start = also.start()
		} else if leftAlone(pid, m) {
			if hasAbandoned(pid, m) {
				found = true
				errs = append(errs, also.pending(prune(ctx, tr, pid, also.start(), m)))
			}
			continue
		}
		if by := livesFor(pid, m); by != 0 {
			return found, tracee.TracedBy(pid, by)
		}
		// If the memory can't be read now, it isn't read while the process is stopped, either.
		if _, err := untrusted.Within(func() (any, error) { return nil, LiftBreakpoints(pid, m) }); errors.Is(err, untrusted.ErrNoAnswer) {
			return true, fmt.Errorf("what an earlier kprobe left can't be read: %w", err)
		}
		found = true
		if err := recoverFile(ctx, tr, pid, start, m, known[m.Inode]); err != nil && (also.has(m.Start) || !errors.Is(err, errNeeded)) {
			return true, err
		}
	}
	return found, errors.Join(errs...)
}

// recoverFile removes what a memory file lists, unless start isn't 0 and the process began at another time.
func recoverFile(ctx context.Context, tr *tracee.Tracer, pid int, start uint64, m *symbols.Mapping, known journal) error {
	p, err := tr.Attach(ctx, pid)
	if err != nil {
		return err
	}
	var a *Area
	gone := false
	err = p.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		// The killed kprobe may have been about to unmap it, as the last there was. No other process
		// gets the number while this one is traced.
		if gone = start != 0 && !procfs.Runs(pid, start) || !hasFile(pid, m); gone {
			return nil
		}
		// Whoever wants to use it must trace the process first.
		if needed(pid, m) {
			return errNeeded
		}
		if a, err = Open(p, m, &known); err != nil || a == nil {
			return err
		}
		if err := a.disown(); err != nil {
			return err
		}
		return p.WithSharers(ctx, stopped, func(stopped []*tracee.Thread) error {
			return errors.Join(a.unwatch(stopped), a.RestoreText(stopped))
		})
	})
	err = tracee.IgnoreLate(err)
	if gone {
		return errors.Join(err, p.Detach(ctx, nil))
	}
	if a == nil && err == nil {
		// Killed before it wrote the first word: nothing else is there.
		return p.Detach(ctx, func([]*tracee.Thread) error { return memory.Munmap(ctx, p, m.Start, uint64(m.End-m.Start)) })
	}
	if err != nil {
		p.KeepTrapsOpen()
		return errors.Join(err, p.Detach(ctx, nil))
	}
	steps, err := a.File.Get64(a.File.Layout.Header.Off + memory.HeaderSteps)
	if n := int64(steps); err == nil && n > 0 {
		p.DropSteps(int(min(n, 1<<20)))
	}
	a.drain(ctx)
	return p.Detach(ctx, func(stopped []*tracee.Thread) error {
		if !a.drained(stopped) {
			// It leads back to the program by itself; the memory stays for it.
			return nil
		}
		// A call that a thread was in when kprobe was killed may have mapped an arena since, or
		// unmapped one, or the file. No thread is in such a call now.
		if !hasFile(pid, m) {
			return nil
		}
		if _, err := a.findArenas(known.maps); err != nil {
			return errors.Join(err, a.abandon())
		}
		return a.Leave(ctx, stopped)
	})
}

// disown makes the memory file say that its probes are not to stay. If this kprobe is killed
// while it removes them, the next one continues.
func (a *Area) disown() error {
	at := a.File.Addr(a.File.Layout.Header.Off + ring.ModeOff)
	var mode [4]byte
	if _, err := a.Proc.ReadMemory(mode[:], at); err != nil {
		return err
	}
	was := binary.LittleEndian.Uint32(mode[:])
	if was&ring.ModeDetached == 0 {
		return nil
	}
	binary.LittleEndian.PutUint32(mode[:], was&^ring.ModeDetached)
	return a.Proc.WriteMemory(mode[:], at)
}

// drain waits until no thread is in a detour or in the fallback handler, which leads to a
// detour or a copy, and until no signal handler will return there. Nobody has held signals
// since the tracer's death. The text is restored, so no thread enters a detour any more, and
// each thread leaves by itself, or by the fallback handler if something faults there. drain
// gives up after a time, because a handler may never return.
func (a *Area) drain(ctx context.Context) {
	for length := range Moments() {
		outside := false
		// An error means that threads are gone or wait in the kernel.
		_ = a.Proc.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			outside = a.drained(stopped)
			return nil
		})
		if outside || ctx.Err() != nil {
			return
		}
		runOn(ctx, a.Proc.Tracer(), length)
	}
}

// runOn lets the threads of a tracer run for a moment.
func runOn(ctx context.Context, tr *tracee.Tracer, length time.Duration) {
	moment, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	_ = tr.Run(moment, passing{}) // ends with the moment
}

// Drain restores the text of a process that a session had let go of for a while. Like recovery,
// it waits until no signal handler will return into kprobe's code.
func (a *Area) Drain(ctx context.Context) error {
	err := a.Proc.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		return a.Proc.WithSharers(ctx, stopped, a.RestoreText)
	})
	if err := tracee.IgnoreLate(err); err != nil {
		return err
	}
	a.drain(ctx)
	return nil
}

// passing is a tracee.Handler that leaves everything to the program and its fallback handlers.
type passing struct{}

func (passing) Breakpoint(*tracee.Thread) tracee.Verdict                   { return tracee.NotMine }
func (passing) Stepped(*tracee.Thread) tracee.Verdict                      { return tracee.Resume }
func (passing) Signal(*tracee.Thread, *tracee.Siginfo) tracee.Verdict      { return tracee.Deliver }
func (passing) NewThread(*tracee.Thread)                                   {}
func (passing) Fork(*tracee.Thread, *tracee.Process, tracee.ForkKind) bool { return false }
func (passing) Exec(*tracee.Process)                                       {}
func (passing) ThreadExit(*tracee.Thread)                                  {}
func (passing) Exited(*tracee.Process, syscall.WaitStatus)                 {}

// Threads get moments to leave kprobe's code, each longer than the one before. On a busy
// machine a thread that may run for a millisecond gets no processor in that time.
const (
	firstMoment = time.Millisecond
	lastMoment  = 40 * time.Millisecond
	allMoments  = 3 * time.Second
)

// Moments yields the lengths of these moments, until allMoments have passed.
func Moments() iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		end := time.Now().Add(allMoments)
		for length := firstMoment; yield(length) && time.Now().Before(end); {
			length = min(2*length, lastMoment)
		}
	}
}
