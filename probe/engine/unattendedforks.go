package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Children of processes that are let go of
//
// With Options.Follow, a child that is forked while nobody traces its parent records from its
// first instruction. It has the jumps, and the gate in its parent's state, and writes the same
// rings with its own threads' numbers. It is neither stopped nor traced.
//
//	forked   it has its parent's memory file. The session looks from outside whether it lives,
//	         executes a program, maps files or sets seccomp rules
//	taken    it is a process of the session in its own right: the copy of its parent's probes was
//	         removed and the session's definitions were armed. It is traced from then on, so
//	         that a program which it executes is probed in time. This happens before its
//	         parent is changed, because probe numbers are the parent's; if its parent has
//	         ended; and if it has done one of the above
//
// A program that a child executes is attached to once that is seen; what it did before is in no
// ring. A child that was forked and not taken is made clean when its parent is left
// (area.Forked).

// forks is what is known of the processes that a target has made while it was let go of.
type forks struct {
	kids  map[int]*forkedKid
	other map[int]uint64 // processes that are not to be taken, with when they began
	next  time.Time
}

// forkedKid is a forked process that records into its parent's rings.
type forkedKid struct {
	start  uint64
	looked time.Time
	maps   []symbols.Mapping // of files, that can be executed
}

// forksRecord reports whether forked children of processes that are let go of record.
func (s *Engine) forksRecord() bool { return s.LetsGo && s.Opts.Follows() }

// beginForks leaves out what the process has made before it was attached to: what it has
// made since is a target.
func (tg *Target) beginForks() {
	f := &tg.unattended.forks
	f.kids, f.other = map[int]*forkedKid{}, map[int]uint64{}
	for _, pid := range procfs.Process(tg.Proc.PID()).AllChildren() {
		if tg.Engine.Targets[pid] == nil {
			f.other[pid] = procfs.StartTime(pid)
		}
	}
}

// watchForks looks after what a process that is let go of has made, and says when to look
// again; zero: there is nothing to look after.
func (tg *Target) watchForks(ctx context.Context) (next time.Time) {
	b := &tg.unattended
	if !tg.Engine.forksRecord() || !b.letGo || tg.Area == nil || b.forked == nil {
		return next
	}
	now := time.Now()
	if now.Before(b.forks.next) {
		return b.forks.next
	}
	for pid, kid := range b.forks.kids {
		tg.lookAtKid(ctx, pid, kid)
	}
	for _, pid := range tg.Feed.Owners.Fresh() {
		tg.meet(ctx, pid)
	}
	tg.meetChildren(ctx, tg.Proc.PID())
	took := time.Since(now)
	b.forks.next = now.Add(max(letGoTick, letGoShare*took))
	return b.forks.next
}

// letGoShare bounds what looking after children takes of a CPU: one part of so many.
const letGoShare = 20

// meetChildren looks at the children of a process, and at those of what it has forked.
func (tg *Target) meetChildren(ctx context.Context, pid int) {
	for _, child := range procfs.Process(pid).AllChildren() {
		if tg.meet(ctx, child) {
			tg.meetChildren(ctx, child)
		}
	}
}

// meet takes note of a process that the target may have made, and reports whether it
// records into the target's rings.
func (tg *Target) meet(ctx context.Context, pid int) bool {
	f := &tg.unattended.forks
	if f.kids[pid] != nil {
		return true
	}
	start := procfs.StartTime(pid)
	if at, known := f.other[pid]; known && at == start || start == 0 || tg.Engine.Targets[pid] != nil || pid == tg.Proc.PID() {
		return false
	}
	switch {
	case len(executable(pid)) == 0: // it ends, or executes a program right now
	case !tg.unattended.forked.Has(pid):
		f.other[pid] = start
		tg.Engine.takeExecuted(ctx, pid)
	case tracee.SameMemory(pid, tg.Proc.PID()): // until it executes a program
	default:
		f.kids[pid] = &forkedKid{start: start, looked: time.Now(), maps: executable(pid)}
		tg.Engine.Logf("process %d was forked, and records into the rings of process %d", pid, tg.Proc.PID())
		return true
	}
	return false
}

// lookAtKid looks whether a forked process is still what it was.
func (tg *Target) lookAtKid(ctx context.Context, pid int, kid *forkedKid) {
	f := &tg.unattended.forks
	if procfs.StartTime(pid) != kid.start {
		delete(f.kids, pid)
		return
	}
	switch is, err := tg.asLetGo().in(pid); {
	case errors.Is(err, unix.ESRCH): // it ends, and has no memory any more
	case !is:
		delete(f.kids, pid)
		f.other[pid] = kid.start
		tg.Engine.takeExecuted(ctx, pid)
	case time.Since(kid.looked) >= letGoMaps:
		kid.looked = time.Now()
		if maps := executable(pid); !sameFiles(maps, kid.maps) {
			tg.takeKid(ctx, pid, "it has mapped or unmapped files")
		} else if tracee.Filtered(pid) && !tracee.Filtered(tg.Proc.PID()) {
			tg.takeKid(ctx, pid, "it has set rules of seccomp")
		}
	}
}

// executable lists a process's mappings of files that can be executed.
func executable(pid int) (list []symbols.Mapping) {
	maps, _ := symbols.ReadMaps(pid) // none of one that is gone
	for _, m := range maps {
		if m.Exec && m.Inode != 0 {
			list = append(list, m)
		}
	}
	return list
}

func sameFiles(a, b []symbols.Mapping) bool {
	return slices.EqualFunc(a, b, func(x, y symbols.Mapping) bool { return x.Start == y.Start && x.End == y.End && x.Inode == y.Inode })
}

// takeForked makes processes of the session of all that have the target's memory file.
func (tg *Target) takeForked(ctx context.Context) {
	b := &tg.unattended
	if !tg.Engine.forksRecord() || b.forked == nil || tg.Area == nil {
		return
	}
	b.forked.Note()
	all, err := b.forked.All()
	if err != nil {
		tg.Engine.Warnf("what process %d has made isn't known: %v", tg.Proc.PID(), err)
	}
	for _, pid := range all {
		if tg.Engine.Targets[pid] == nil && pid != tg.Proc.PID() && !tracee.SameMemory(pid, tg.Proc.PID()) {
			tg.takeKid(ctx, pid, "")
		}
	}
}

// leaveForked sees to what a process has made that has ended, or executed a program.
func (tg *Target) leaveForked(ctx context.Context) {
	tg.unattended.forked.Note()
	if tg.Engine.forksRecord() && !tg.Engine.Closed && !tg.Engine.Stopping {
		tg.takeForked(ctx)
	}
	tg.cleanForked(ctx)
}

// takeKid makes a process of the session of a forked one. why is said; "": its parent
// changes or has ended.
func (tg *Target) takeKid(ctx context.Context, pid int, why string) {
	s := tg.Engine
	delete(tg.unattended.forks.kids, pid)
	if why != "" {
		s.Logf("process %d is taken by itself: %s", pid, why)
	}
	p, err := s.Tracer.Attach(ctx, pid)
	if err == nil {
		err = p.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			return p.WithSharers(ctx, stopped, func(stopped []*tracee.Thread) error {
				return tg.renewKid(ctx, p, stopped)
			})
		})
		err = tracee.IgnoreLate(err)
	}
	if err == nil || errors.Is(err, tracee.ErrGone) || errors.Is(err, tracee.ErrZombie) {
		return
	}
	s.Warnf("child %d isn't probed any more: %v", pid, err)
	if p != nil && s.Targets[pid] == nil {
		s.LetGo(p)
	}
}

// renewKid has a forked process that is stopped have probes of its own for those that it
// has from its parent.
func (tg *Target) renewKid(ctx context.Context, p *tracee.Process, stopped []*tracee.Thread) error {
	s := tg.Engine
	tg.cleanCopy(ctx, p, stopped)
	if err := s.Adopt(p, nil); err != nil {
		return err
	}
	kid := s.Targets[p.PID()]
	kid.Child, kid.inherited = true, map[symbols.Addr]bool{}
	for _, m := range kid.Space.Mappings() {
		if m.Exec && (tg.isOwn(m.Start) || tg.inherited[m.Start]) {
			kid.inherited[m.Start] = true
		}
	}
	kid.TakeSharers()
	return kid.ArmDefs(ctx, s.Events.Definitions())
}

// takeExecuted attaches to a process that has executed a program while nobody traced it.
func (s *Engine) takeExecuted(ctx context.Context, pid int) {
	p, err := s.Tracer.Attach(ctx, pid)
	if err == nil {
		if err = s.Adopt(p, nil); err != nil {
			s.LetGo(p)
		}
	}
	if err != nil {
		s.Logf("child %d has executed a program, and isn't probed: %v", pid, err)
		return
	}
	tg := s.Targets[pid]
	tg.Child = true
	tg.TakeSharers()
	s.Logf("child %d has executed a program: its probes are put in while it runs", pid)
	tg.armLate(ctx, lateTries)
}

// Times of arming a program that runs already: its libraries may still be on their way.
const (
	lateTries = 10
	lateAgain = 50 * time.Millisecond
)

// armLate arms the session's definitions, and tries again where one of a library can't be.
func (tg *Target) armLate(ctx context.Context, tries int) {
	s := tg.Engine
	switch err := tg.ArmDefs(ctx, s.Events.Definitions()); {
	case err == nil || errors.Is(err, tracee.ErrGone) || errors.Is(err, symbols.ErrGone) || s.Run.Err() != nil:
	case errors.Is(err, symbols.ErrNotMapped) && tries > 1:
		time.AfterFunc(lateAgain, func() {
			_ = s.Tracer.Do(func() error { // fails only once the session is closed
				if s.Targets[tg.Proc.PID()] == tg && !s.Closed && !s.Stopping {
					tg.armLate(ctx, tries-1)
				}
				return nil
			})
		})
	default:
		s.SayUnarmed(tg.Proc.PID(), tg.OrExecuted(ctx, err))
	}
}
