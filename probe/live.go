package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/probe/area"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// ErrNotTraced says that no living kprobe traces the process.
var ErrNotTraced = errors.New("no kprobe is tracing this process, and it has no detached probes")

// ErrStarting says that a kprobe is still attaching to the process.
var ErrStarting = errors.New("a kprobe is just beginning to trace this process: try again")

// Live is another kprobe's session in a process, seen through the memory file that is mapped
// there. Neither the session nor the process notices it. Live is not safe for concurrent use.
type Live struct {
	PID    int // the process that is traced
	Tracer int // the kprobe that traces it; 0 where it is Detached
	// Detached says that the probes were left alone (Session.Detach).
	Detached bool

	mem   *os.File // its memory
	start uint64   // when it began: another process may get its number
	base  symbols.Addr
	snap  *ring.Snapshot
	sites []ring.Site
	host  symbols.Addr // where the memory file is whose words its detours use; 0: there are none
	more  []*Live      // others that are Detached, with memory files of their own

	// uncounted says that the hits that wait in rings are not counted: it takes long where rings are full, and who changes
	// probes needs none.
	uncounted bool

	pending []string // why places of removed probes are not free yet
}

// Pending tells why places of detached probes that were removed are not free yet, after Remove or Delete: a thread may
// still run in their code, or somebody traces a forked child that has a copy of it. The probes take no hits any more.
// Nothing else can be probed at their places until a later change of the process's probes has given them back. It is empty
// if all are free, or belong to probes that stay.
func (l *Live) Pending() []string { return l.pending }

// mostLeft bounds how many recorders of a process are looked at.
const mostLeft = 64

// startPatience is how long OpenLive waits for a session that is being set up.
var startPatience = 2 * time.Second

// OpenLive finds the session that traces a process or, if there is none, the probes that were
// left alone in it. If a session is just being set up, or its probes are about to be left alone, it waits for that, at most
// two seconds. Close the result.
//
// Errors are ErrNotTraced, ErrStarting, and symbols.ErrGone and symbols.ErrPermission of
// reading the process, which takes the right to trace it (ptrace(2)).
func OpenLive(pid int) (*Live, error) { return soonLive(pid, true) }

// soonLive is OpenLive. Without counts, hits that wait in rings are not counted.
func soonLive(pid int, counts bool) (*Live, error) {
	for until := time.Now().Add(startPatience); ; time.Sleep(5 * time.Millisecond) {
		l, err := findLive(pid, counts)
		if !errors.Is(err, ErrStarting) && (err != nil || !l.leaves()) || time.Now().After(until) {
			return l, err
		}
		if err == nil {
			l.Close()
		}
	}
}

// leaves reports whether a session is about to leave its probes alone: it is gone in a moment, and they are not.
func (l *Live) leaves() bool { return !l.Detached && l.snap.Header.Mode&ring.ModeOverwrite != 0 }

// findLive is soonLive without waiting. A session that is about to leave its probes alone is found if nobody has left
// any before.
func findLive(pid int, counts bool) (*Live, error) {
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		return nil, err
	}
	if len(maps) == 0 {
		return nil, fmt.Errorf("%w: it has ended, or is a thread of the kernel", symbols.ErrGone)
	}
	var failed error
	var left, leaving *Live
	defer func() {
		if leaving != nil {
			leaving.Close()
		}
	}()
	for _, m := range maps {
		if !memory.IsFile(pid, &m) {
			continue
		}
		l, err := untrusted.Within(func() (*Live, error) { return openLive(pid, m.Start, counts) })
		switch {
		case err == nil && l.leaves() && leaving == nil:
			leaving = l
		case err == nil && l.leaves():
			l.Close()
		case err == nil && !l.Detached:
			if left != nil {
				left.Close()
			}
			return l, nil
		case err == nil && left == nil:
			left = l
		case err == nil && len(left.more) < mostLeft:
			left.more = append(left.more, l)
		case err == nil:
			l.Close()
		case !errors.Is(err, ErrNotTraced):
			failed = err
		}
	}
	if left != nil {
		return left, nil
	}
	if leaving != nil {
		l := leaving
		leaving = nil
		return l, nil
	}
	if failed != nil {
		return nil, failed
	}
	return nil, ErrNotTraced
}

func openLive(pid int, base symbols.Addr, counts bool) (*Live, error) {
	start := procfs.StartTime(pid)
	mem, err := memory.OpenProcess(pid)
	if err != nil {
		return nil, err
	}
	l := &Live{PID: pid, mem: mem, start: start, base: base, uncounted: !counts}
	err = l.refresh()
	if gone := l.same(); gone != nil {
		err = gone
	}
	if err != nil {
		mem.Close()
		return nil, err
	}
	return l, nil
}

// LivePIDs lists the processes that a living kprobe traces, and those in which probes were left
// alone, as far as this user may look.
func LivePIDs() ([]int, error) {
	all, err := procfs.Processes()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, pid := range all {
		l, err := findLive(pid, false)
		if err != nil {
			continue // not traced or not yet, gone, or not ours to look at
		}
		l.Close()
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

// Close closes the process's memory. The session isn't affected.
func (l *Live) Close() error {
	err := l.mem.Close()
	for _, x := range l.more {
		err = errors.Join(err, x.Close())
	}
	return err
}

// file is the memory file, through the process's mapping of it.
func (l *Live) file() memory.Window { return memory.Window{Mem: l.mem, At: l.base} }

// Refresh reads probes and counters again, of probes that were left alone also those that came
// since. The error is ErrNotTraced if the session has ended, and symbols.ErrGone if the process
// has.
func (l *Live) Refresh() error { return l.look(true) }

// look is Refresh. Without counts, hits that wait in rings are not counted.
func (l *Live) look(counts bool) error {
	for _, x := range append([]*Live{l}, l.more...) {
		x.uncounted = !counts
	}
	if l.Detached {
		if err := l.findMore(); err != nil {
			return err
		}
	}
	for _, x := range slices.Clone(l.more) {
		if err := x.refresh(); err != nil && !errors.Is(err, ErrNotTraced) {
			return err
		} else if err != nil {
			x.Close()
			l.more = slices.DeleteFunc(l.more, func(y *Live) bool { return y == x })
		}
	}
	err := l.refresh()
	if errors.Is(err, ErrNotTraced) && len(l.more) > 0 {
		// It has been taken out, the others have not.
		next := l.more[0]
		l.mem.Close()
		next.more = l.more[1:]
		*l = *next
		return nil
	}
	return err
}

// same is symbols.ErrGone if the process has ended. Another one may have its number then.
func (l *Live) same() error {
	if !procfs.Runs(l.PID, l.start) {
		return symbols.ErrGone
	}
	return nil
}

// findMore opens the memory files of probes that were left alone since the process was looked
// at last.
func (l *Live) findMore() error {
	maps, err := symbols.ReadMaps(l.PID)
	if err == nil {
		err = l.same()
	}
	if err != nil {
		return err
	}
	for _, m := range maps {
		known := l.base == m.Start || slices.ContainsFunc(l.more, func(x *Live) bool { return x.base == m.Start })
		if known || len(l.more) == mostLeft || !memory.IsFile(l.PID, &m) {
			continue
		}
		x, err := openLive(l.PID, m.Start, !l.uncounted)
		switch {
		case err == nil && x.start != l.start:
			x.Close()
			return symbols.ErrGone
		case err != nil: // it is somebody's who is still arming, or taken out, or nobody's
		case x.Detached:
			l.more = append(l.more, x)
		default:
			x.Close()
		}
	}
	return nil
}

func (l *Live) refresh() error {
	s, err := ring.ReadSnapshot(l.file(), memory.PossibleCPUs())
	if errors.Is(err, ring.ErrNotReady) {
		if err = ErrStarting; !area.HasTracer(l.PID) {
			err = ErrNotTraced // whoever began has been killed
		}
	}
	if err != nil {
		return l.ended(err)
	}
	if s.Header.Base != uint64(l.base) {
		return fmt.Errorf("%w: it says that it is mapped elsewhere", ring.ErrCorrupt)
	}
	tracer := int(s.Header.Tracer)
	l.Detached = s.Header.Mode&ring.ModeDetached != 0
	if l.Detached {
		if !l.uncounted {
			if err := s.CountHeld(l.file()); err != nil {
				return l.ended(err)
			}
		}
		tracer = 0
	} else if tracer == 0 || !procfs.Runs(tracer, s.Header.TracerStart) {
		return ErrNotTraced
	}
	sites, err := ring.ReadSites(l.file(), &s.Header, s.Layout)
	if err != nil {
		return l.ended(err)
	}
	if l.host, err = area.HostOf(l.file(), s.Layout); err != nil {
		return l.ended(err)
	}
	l.snap, l.sites, l.Tracer = s, sites, tracer
	return nil
}

// ended says what a failed read of the memory file means. If the mapping is gone, a read fails
// with EIO. The memory of a process that has ended reads as empty.
func (l *Live) ended(err error) error {
	if gone := l.same(); gone != nil {
		return gone
	}
	maps, merr := symbols.ReadMaps(l.PID)
	if merr != nil {
		return merr
	}
	for _, m := range maps {
		if m.Start == l.base && memory.IsFile(l.PID, &m) {
			return err
		}
	}
	return ErrNotTraced
}

// Enable switches the probes of matching events on or off, from the next hit on. It returns the
// names of the events, GRP/EVENT, each once.
//
// A semaphore of statically defined probes is raised while a probe that needs it is on. A session does that by itself. Where the
// probes are Detached, Enable does: it attaches to the process for a moment. If it can't, the error is a *SemaphoreError,
// and the events are switched.
func (l *Live) Enable(match func(group, event string) bool, on bool) ([]string, error) {
	names, err := l.enable(nil, match, on)
	for _, x := range l.more {
		if err == nil {
			names, err = x.enable(names, match, on)
		}
	}
	if err == nil && l.Detached {
		err = l.syncSemaphores(on)
	}
	if err != nil {
		return names, err
	}
	return names, l.Refresh()
}

// syncSemaphores raises and lowers semaphores of events that were switched.
func (l *Live) syncSemaphores(on bool) error {
	if !area.SemaphoresDue(l.PID, on) {
		return nil
	}
	ctx := context.Background() // all waiting has an end
	turn, err := l.turn(ctx)
	if err == nil {
		err = area.SyncSemaphores(ctx, l.PID, l.start, on)
		turn.End()
	}
	if err == nil || errors.Is(err, ErrNotTraced) || errors.Is(err, symbols.ErrGone) || errors.Is(err, tracee.ErrGone) {
		return err
	}
	return &SemaphoreError{On: on, Err: err}
}

func (l *Live) enable(names []string, match func(group, event string) bool, on bool) ([]string, error) {
	for i := range l.snap.Probes {
		p := &l.snap.Probes[i]
		group, event, _ := strings.Cut(p.Name, "/")
		if !match(group, event) {
			continue
		}
		if err := ring.Enable(l.file(), l.snap.Layout, p.ID, on); err != nil {
			return names, l.ended(err)
		}
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names, nil
}

// Space returns the symbols of the process's addresses.
func (l *Live) Space() (*symbols.Space, error) {
	s, err := symbols.OpenProcess(l.PID, memory.Whole{Mem: l.mem})
	if err == nil {
		err = l.same()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}
