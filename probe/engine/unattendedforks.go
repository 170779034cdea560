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
// first instruction. It has the jumps and the same state of the gate as its parent. It writes to
// the same rings, with the numbers of its own threads. It is neither stopped nor traced. A child
// is in one of two states:
//
//	forked   it has its parent's memory file. The session checks from outside whether it has
//	         ended, executed a program, mapped files or set seccomp rules
//	taken    it is a process of the session in its own right: the copy of its parent's probes was
//	         removed and the session's definitions were armed. It is traced from then on, so
//	         that a program which it executes is probed in time. A child is taken before its
//	         parent is changed, because the probe numbers are the parent's; when its parent has
//	         ended; and when it has executed a program, mapped files or set seccomp rules
//
// If a child executes a program, the session attaches to it when it notices. What the program did
// before that is not recorded. A child that was never taken gets clean text when its parent is
// left (area.Forked).

// forks is what the session knows of processes that a target has forked while it was let go of.
type forks struct {
	kids  map[int]*forkedKid // by process number
	other map[int]uint64     // start times of processes that are not taken, by process number
	next  time.Time          // when to check again
}

// forkedKid is a forked process that records into its parent's rings.
type forkedKid struct {
	start  uint64            // its start time (procfs.StartTime)
	looked time.Time         // when its mappings were last read
	maps   []symbols.Mapping // its executable mappings of files then
}

// forksRecord reports whether forked children of processes that are let go of record.
func (s *Engine) forksRecord() bool { return s.LetsGo && s.Opts.Follows() }

// beginForks excludes the children that the process has forked before it was attached to. Those
// that it has forked since are targets already.
func (tg *Target) beginForks() {
	f := &tg.unattended.forks
	f.kids, f.other = map[int]*forkedKid{}, map[int]uint64{}
	for _, pid := range procfs.Process(tg.Proc.PID()).AllChildren() {
		if tg.Engine.Targets[pid] == nil {
			f.other[pid] = procfs.StartTime(pid)
		}
	}
}

// watchForks checks the children of a process that is let go of. next is when to check again; zero
// if there is nothing to check.
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

// letGoShare bounds the CPU time for checking children: one part in letGoShare of a CPU.
const letGoShare = 20

// meetChildren calls meet for the children of a process, and for the descendants of those that
// record.
func (tg *Target) meetChildren(ctx context.Context, pid int) {
	for _, child := range procfs.Process(pid).AllChildren() {
		if tg.meet(ctx, child) {
			tg.meetChildren(ctx, child)
		}
	}
}

// meet notes a process that the target may have forked, and reports whether it records into the
// target's rings.
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
	case len(executable(pid)) == 0: // it is about to end, or just executing a program
	case !tg.unattended.forked.Has(pid):
		f.other[pid] = start
		tg.Engine.takeExecuted(ctx, pid)
	case tracee.SameMemory(pid, tg.Proc.PID()): // it shares the memory until it executes a program
	default:
		f.kids[pid] = &forkedKid{start: start, looked: time.Now(), maps: executable(pid)}
		tg.Engine.Logf("process %d was forked, and records into the rings of process %d", pid, tg.Proc.PID())
		return true
	}
	return false
}

// lookAtKid checks whether a forked process has ended, executed a program, mapped or unmapped
// files, or set seccomp rules.
func (tg *Target) lookAtKid(ctx context.Context, pid int, kid *forkedKid) {
	f := &tg.unattended.forks
	if procfs.StartTime(pid) != kid.start {
		delete(f.kids, pid)
		return
	}
	switch is, err := tg.asLetGo().in(pid); {
	case errors.Is(err, unix.ESRCH): // it is ending, and its memory is gone
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

// executable lists a process's executable mappings of files.
func executable(pid int) (list []symbols.Mapping) {
	maps, _ := symbols.ReadMaps(pid) // empty if the process is gone
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

// takeForked takes all processes that have a copy of the target's memory file (takeKid).
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

// leaveForked deals with the children of a process that has ended or executed a program: they are
// taken if the session follows children, else they get clean text.
func (tg *Target) leaveForked(ctx context.Context) {
	tg.unattended.forked.Note()
	if tg.Engine.forksRecord() && !tg.Engine.Closed && !tg.Engine.Stopping {
		tg.takeForked(ctx)
	}
	tg.cleanForked(ctx)
}

// takeKid makes a forked process a process of the session. why is logged; "" is not: then its
// parent changes or has ended.
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

// renewKid replaces the copies of its parent's probes in a stopped forked process by probes of its
// own.
func (tg *Target) renewKid(ctx context.Context, p *tracee.Process, stopped []*tracee.Thread) error {
	s := tg.Engine
	tg.cleanCopy(ctx, p, stopped)
	if err := s.Adopt(p, nil); err != nil {
		return err
	}
	kid := s.Targets[p.PID()]
	kid.Child, kid.inherited = true, tg.mappedCode()
	kid.TakeSharers()
	return kid.ArmAsIn(ctx, tg)
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

// A program that runs already may not have mapped all its libraries yet. So its definitions are
// armed in up to lateTries attempts, lateAgain apart.
const (
	lateTries = 10
	lateAgain = 50 * time.Millisecond
)

// armLate arms the session's definitions. If a library isn't mapped, it tries again later.
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
