package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"kprobe/probe/area"
	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a session lets go of its processes while nothing changes
//
// With Options.LetGo no process is traced longer than needed. Jumps record by themselves
// into the rings, which the session reads in its own mapping of them; their detours are
// those of probes that are left alone (detached.go): they look at the gate, which forked
// children find shut, ask the kernel before loads that may fault, and see to births.
//
//	traced    while probes come and go, and as long as something needs a tracer
//	          (keepsTracer)
//	let go    no thread is traced: signals, births of threads and processes, and system
//	          calls cost what they cost without kprobe, and others may trace the process.
//	          The header still says that this kprobe has the probes: nobody else takes
//	          them out while it lives, and any other does once it doesn't
//	traced    again, for every change, and to take the probes out (comeBack)
//
// Signals were not held while the process was let go of: a handler may have interrupted a
// detour and return there later. So a change waits until none will (settled), and whoever
// takes the probes out does what recovery does (area.Area.Unheld). Forked children kept
// the jumps, and are made clean when the probes are taken out.
//
// What the process does meanwhile is looked at by watchLetGo: whether it lives, executes
// a program, loads and unloads libraries.

// unattended is what a session knows of a target that it may let go of.
type unattended struct {
	letGo  bool      // nobody traces it
	was    bool      // it was let go of once: signals were not held
	why    string    // it is traced for now, as was told last
	next   time.Time // it isn't tried before
	pause  time.Duration
	looked time.Time // when its mappings were compared last
	begin  []byte    // of the memory file, by which its memory is known
	forked *area.Forked
}

// Times of letting go.
const (
	letGoTick = 20 * time.Millisecond // how often processes that are let go of are looked at
	letGoMaps = time.Second           // and their mappings
	// letGoSoon and letGoLate bound how long a process stays traced after a change, or when
	// it couldn't be let go of: longer where that was so the last time.
	letGoSoon  = 20 * time.Millisecond
	letGoLate  = 10 * time.Second
	letGoQuiet = 10 * time.Second // after so long without a change it is soon again
)

// whyStays says why processes are never let go of; "": they are.
func (o *Options) whyStays() string {
	switch {
	case !o.LetGo || o.Detach:
		return "it is to be so"
	case o.Follow:
		return "children are followed"
	case o.Wait != nil:
		return "processes to come are waited for"
	case o.Inject != nil:
		return "calls are changed"
	case o.NoOptimize:
		return "every probe is a breakpoint"
	}
	return ""
}

// standsAlone reports whether detours are built for processes that nobody traces.
func (s *Session) standsAlone() bool { return s.opts.Detach || s.letsGo }

// keepsTracer says what needs a tracer; "": nothing does. later says that this passes.
func (tg *target) keepsTracer() (why string, later bool) {
	switch {
	case tg.loads() || tg.params == nil || !slices.ContainsFunc(slices.Collect(maps.Keys(tg.placed)), func(p *placed) bool { return p.birth == nil }):
		return "its probes are not in yet", true
	case tg.child:
		return "it shares the memory of a process that is gone", false
	case len(tg.pending) > 0:
		return "definitions wait for a library", false
	case len(tg.gone) > 0:
		return "probes wait for their library", false
	case len(tg.proc.StillSharers()) > 0:
		return "another process runs in its memory", true
	case tg.reap(context.WithoutCancel(tg.s.run)) > 0:
		return "what was taken out is still in use", true
	case len(tg.patches.noRoom) > 0:
		return "a goroutine's stack may have no room for a detour", false
	case len(tg.lost) > 0:
		return "some probes could not be put back", false
	}
	for p := range tg.placed {
		if p.birth != nil {
			continue
		}
		if why := p.needsTracer(); why != "" {
			return fmt.Sprintf("%s at %s: %s", p.ev.Name, p.where.Name, why), false
		}
		if !tg.params.Careful && detour.Reads(p.prog) {
			return fmt.Sprintf("%s at %s: its hits read memory, and rules of seccomp judge system calls", p.ev.Name, p.where.Name), false
		}
		if x := p.byExits; x != nil && x.open != "" {
			return fmt.Sprintf("%s at %s: its function goes on to where only a register says", p.ev.Name, p.where.Name), false
		}
	}
	return "", false
}

// tryLetGo lets go of the process if nothing needs a tracer.
func (tg *target) tryLetGo(ctx context.Context) {
	b := &tg.unattended
	if !tg.s.letsGo || b.letGo || tg.s.closed || !tg.s.running || !tg.isMain() || tg.dying || tg.area == nil || time.Now().Before(b.next) {
		return
	}
	why, later := tg.keepsTracer()
	if why == "" {
		why, later = tg.letGo(ctx)
	}
	if why == "" {
		tg.s.logf("process %d is let go of: nothing traces it while nothing changes", tg.proc.PID())
		return
	}
	if !later {
		b.next = time.Now().Add(letGoLate)
	} else {
		tg.postponeLetGo()
	}
	if !later && b.why != why {
		b.why = why
		tg.s.logf("process %d stays traced: %s", tg.proc.PID(), why)
	}
}

// postponeLetGo has the target stay traced for a while.
func (tg *target) postponeLetGo() {
	b, now := &tg.unattended, time.Now()
	if now.Sub(b.next) > letGoQuiet {
		b.pause = 0
	}
	b.pause = min(max(2*b.pause, letGoSoon), letGoLate)
	b.next = now.Add(b.pause)
}

// letGo lets go of the process, or says why not, and whether that passes.
func (tg *target) letGo(ctx context.Context) (why string, later bool) {
	// Libraries are looked for now and then.
	b := &tg.unattended
	b.letGo = true
	tg.watchLibraries(ctx)
	b.letGo = false
	tg.reap(ctx)
	defer func() {
		if why != "" {
			tg.watchLibraries(ctx)
		}
	}()
	for _, st := range tg.sites {
		if st.armed {
			return fmt.Sprintf("there is a breakpoint at %v", st.addr), false
		}
	}
	if !tg.births.trusted {
		tg.watchBirths(ctx)
	}
	if tg.area == nil || tg.over {
		return "it is gone, or executes a program", true
	}
	begin := make([]byte, identity)
	copy(begin, tg.area.File.Mem[tg.area.File.Layout.Header.Off:])
	err := tg.proc.Part(ctx, func(stopped []*tracee.Thread) error {
		tg.useSequences(stopped)
		return nil
	})
	switch {
	case err == nil:
	case errors.Is(err, tracee.ErrNotNow), tracee.IgnoreLate(err) == nil, errors.Is(err, tracee.ErrGone):
		tg.births.used = false
		tg.setSequences()
		return err.Error(), true
	default:
		tg.births.used = false
		tg.setSequences()
		return err.Error(), false
	}
	b.letGo, b.was, b.why, b.begin, b.looked = true, true, "", begin, time.Now()
	if b.forked == nil {
		b.forked = tg.area.Forked()
	}
	tg.area.Unheld = true
	tg.openTraps = false
	clear(tg.threads)
	tg.s.listLetGo()
	return "", false
}

// identity is how many bytes of the memory file's beginning tell its mapping from another.
const identity = 8

// letGoOf is a process that is let go of, as anybody may look at it.
type letGoOf struct {
	proc  *tracee.Process
	at    symbols.Addr // of the memory file
	begin []byte
}

// listLetGo lists the processes that are let go of.
func (s *Session) listLetGo() {
	var list []letGoOf
	for _, tg := range s.targets {
		if tg.unattended.letGo && tg.isMain() && tg.area != nil {
			list = append(list, letGoOf{tg.proc, tg.area.File.Addr(tg.area.File.Layout.Header.Off), tg.unattended.begin})
		}
	}
	s.awayFrom.Store(&list)
}

// there reports whether the process has the memory that it was let go of with.
func (x letGoOf) there() bool {
	b := make([]byte, len(x.begin))
	err := x.proc.Peek(b, x.at)
	return err == nil && slices.Equal(b, x.begin)
}

// watchLetGo looks after processes that are let go of, and lets go of others, until ctx
// is done.
func (s *Session) watchLetGo(ctx context.Context) {
	if !s.letsGo {
		return
	}
	tick := time.NewTicker(letGoTick)
	defer tick.Stop()
	due := time.Time{}
	for {
		changed := false
		if list := s.awayFrom.Load(); list != nil {
			changed = slices.ContainsFunc(*list, func(x letGoOf) bool { return !x.there() })
		}
		if now := time.Now(); changed || now.After(due) {
			err := s.tracer.Do(func() error {
				due = s.lookAfterLetGo(context.WithoutCancel(ctx))
				return nil
			})
			if errors.Is(err, tracee.ErrClosed) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lookAfterLetGo does what is due, and says when more may be.
func (s *Session) lookAfterLetGo(ctx context.Context) (due time.Time) {
	due = time.Now().Add(letGoMaps)
	for _, tg := range s.targets {
		if s.closed || s.stopping || !tg.isMain() || tg.area == nil {
			continue
		}
		b := &tg.unattended
		switch {
		case !b.letGo:
			tg.tryLetGo(ctx)
			if !b.letGo && b.next.Before(due) {
				due = b.next
			}
		case tg.proc.Ended():
			status := tg.proc.EndStatus()
			b.forked.Note()
			if err := b.forked.Clean(ctx); err != nil {
				s.warnf("process %d has ended, and what it has made has probes: %v", tg.proc.PID(), err)
			}
			_ = tg.proc.Forget() // fails only once the session is closed
			handler{s}.Exited(tg.proc, status)
			s.listLetGo()
		case !letGoOf{tg.proc, tg.area.File.Addr(tg.area.File.Layout.Header.Off), b.begin}.there():
			s.executedMeanwhile(ctx, tg)
		case time.Since(b.looked) >= letGoMaps:
			b.looked = time.Now()
			tg.seeLibraries(ctx)
			if tg.params != nil && !tg.renewal.filtered && tracee.Filtered(tg.proc.PID()) {
				tg.seeFilters(ctx)
			}
		}
	}
	return due
}

// seeLibraries does what the loader's breakpoint does for a process that is traced.
func (tg *target) seeLibraries(ctx context.Context) {
	before := tg.space.Modules()
	if err := tg.refresh(); err != nil {
		return // it is gone, or its mappings can't be read now
	}
	if slices.Equal(before, tg.space.Modules()) {
		if tg.textThere() {
			return
		}
		before = nil
	}
	if err := tg.comeBack(ctx); err != nil {
		tg.s.logf("process %d has loaded or unloaded libraries: %v", tg.proc.PID(), err)
		return
	}
	tg.modulesMoved(ctx, before)
}

// seeFilters does what is done at a tick for a process that is traced: it has set rules of
// seccomp.
func (tg *target) seeFilters(ctx context.Context) {
	if err := tg.comeBack(ctx); err != nil {
		tg.s.logf("process %d has set rules of seccomp: %v", tg.proc.PID(), err)
		return
	}
	tg.filtersAtTick()
}

// textThere reports whether of each file one jump is still there: it may have been
// unloaded, and loaded again at the same address.
func (tg *target) textThere() bool {
	seen := map[*symbols.Module]bool{}
	for p := range tg.placed {
		if m := p.where.Module; m == nil || seen[m] || len(p.wants) == 0 {
			continue
		}
		q := tg.patches.covering(p.wants[0].Site.Addr, 1)
		if q == nil || !q.armed || len(q.plan.Writes) == 0 {
			continue
		}
		seen[p.where.Module] = true
		if w := q.plan.Writes[0]; !tg.holds(symbols.Addr(w.At), w.Bytes) {
			return false
		}
	}
	return true
}

// comeBack seizes the process's threads again if it was let go of. Errors are those of
// tracee.Process.Rejoin, and errInterrupted: it is let go of again, or stays traced.
func (tg *target) comeBack(ctx context.Context) error {
	if tg = tg.main; !tg.unattended.letGo {
		return nil
	}
	if err := tg.seizeAgain(ctx); err != nil {
		return err
	}
	tg.postponeLetGo()
	if err := tg.settled(ctx); err != nil {
		return err
	}
	tg.layFallbacksAgain(nil)
	if err := tg.proc.GuardTrap(ctx, nil); err != nil {
		return err
	}
	tg.watchLibraries(ctx)
	return nil
}

// seizeAgain is comeBack of who only takes the probes out.
func (tg *target) seizeAgain(ctx context.Context) error {
	if err := tg.proc.Rejoin(ctx); err != nil {
		return err
	}
	tg.unattended.letGo = false
	tg.s.listLetGo()
	for _, q := range tg.proc.Sharers() {
		tg.s.targets[q.PID()] = tg.sharing(q)
	}
	for _, t := range tg.proc.Threads() {
		tg.noteComm(t)
	}
	tg.births.used = false
	tg.setSequences()
	return nil
}

// errInterrupted says that a handler of a signal will return into a detour.
var errInterrupted = errors.New("a handler of a signal has interrupted a probe in it, and doesn't return: try again")

// settled waits until no handler of a signal will return into code of kprobe's, and no
// thread is in a fallback handler.
func (tg *target) settled(ctx context.Context) error {
	for length := range area.Moments() {
		inside := false
		err := tg.withStopped(ctx, func(stopped []*tracee.Thread) error {
			inside = slices.ContainsFunc(stopped, tg.area.Interrupted)
			return nil
		})
		if err := tracee.IgnoreLate(err); err != nil || !inside {
			return err
		}
		if _, err := away(tg.s, func() (struct{}, error) { time.Sleep(length); return struct{}{}, nil }); err != nil {
			return err
		}
		if err := tg.goneError(); err != nil {
			return err
		}
	}
	return errInterrupted
}

// comeBackAll is comeBack for every process.
func (s *Session) comeBackAll(ctx context.Context) error {
	for pid, tg := range s.targets {
		if !tg.isMain() || !tg.unattended.letGo {
			continue
		}
		if !tg.proc.Ended() && !(letGoOf{tg.proc, tg.area.File.Addr(tg.area.File.Layout.Header.Off), tg.unattended.begin}).there() {
			s.executedMeanwhile(ctx, tg)
			continue
		}
		if err := tg.comeBack(ctx); err != nil && !errors.Is(err, tracee.ErrGone) {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return nil
}

// changing runs fn on the tracer's thread with all processes traced.
func (s *Session) changing(ctx context.Context, fn func() error) error {
	return s.tracer.Do(func() error {
		if s.closed {
			return ErrClosed
		}
		if err := s.comeBackAll(ctx); err != nil {
			return err
		}
		return fn()
	})
}

// executedMeanwhile arms the definitions in a program that a process has executed while it
// was let go of.
func (s *Session) executedMeanwhile(ctx context.Context, old *target) {
	p := old.proc
	if p.Ended() {
		return // that is seen at the next look
	}
	p.Replaced()
	if err := p.Rejoin(ctx); err != nil {
		s.warnf("process %d executed a program, and isn't probed any more: %v", p.PID(), err)
		_ = p.Forget()
		handler{s}.Exited(p, 0)
		s.listLetGo()
		return
	}
	old.unattended.letGo = false
	old.leaveSpace()
	delete(s.targets, p.PID())
	s.listLetGo()
	fail := func(err error) {
		if !errors.Is(err, tracee.ErrGone) {
			s.warnf("after exec of %d: %v", p.PID(), err)
		}
	}
	if err := s.adopt(p, nil); err != nil {
		fail(err)
		s.letGo(p)
		return
	}
	s.logf("process %d executed a program: its probes are put in while it runs", p.PID())
	if err := s.targets[p.PID()].armDefs(ctx, s.definitions()); err != nil {
		fail(err)
	}
}

// seizeForEnd seizes what was let go of, as a run ends: what is in detours then is waited for.
func (s *Session) seizeForEnd(ctx context.Context) {
	for _, tg := range s.targets {
		if tg.isMain() && tg.unattended.letGo && !tg.proc.Ended() {
			if err := tg.seizeAgain(ctx); err != nil {
				s.logf("%v", err)
			}
		}
	}
}

// Times of leaving a process that another tracer holds.
const (
	holderLook = 50 * time.Millisecond
	holderTold = time.Second
)

// endLetGo has a target that was let go of once be ready to be left: traced, with its
// text restored, and, as far as that comes, no handler of a signal about to return into
// code of kprobe's. Where another tracer holds the process it waits for that one, until
// ctx is done; the probes are switched off then and stay, as after a kill. clean is to be
// called once the process is left.
func (tg *target) endLetGo(ctx context.Context) (clean func(), err error) {
	for begun, told := time.Now(), false; tg.unattended.letGo; time.Sleep(holderLook) {
		err := tg.seizeAgain(ctx)
		var traced *tracee.TracedError
		switch {
		case err == nil:
		case !errors.As(err, &traced):
			return nil, errors.Join(err, tg.abandonArea())
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w; the probes are switched off, and stay until kprobe traces the process again", errors.Join(err, tg.abandonArea()))
		case !told && time.Since(begun) >= holderTold:
			told = true
			tg.s.warnf("process %d is traced by %s (%d): its probes are taken out when that one lets go of it", tg.proc.PID(), traced.Comm, traced.By)
		}
	}
	tg.feed.over.Store(true)
	tg.area.Outside = tg.outside
	forked := tg.unattended.forked
	forked.Note()
	if err := tg.area.Drain(ctx); err != nil {
		return nil, err
	}
	return func() {
		if err := forked.Clean(ctx); err != nil {
			tg.s.warnf("process %d is left, and what it has made has probes: %v", tg.proc.PID(), err)
		}
	}, nil
}

// abandonArea leaves the probes in the process, switched off, for whoever recovers them.
func (tg *target) abandonArea() error {
	tg.feed.over.Store(true)
	tg.feed.disableAll()
	a := tg.area
	tg.area = nil
	return errors.Join(a.Abandon(), tg.proc.Forget())
}

// forgetBirths takes the jumps beside system calls that make tasks out again: they are to be
// laid anew.
func (tg *target) forgetBirths(ctx context.Context) {
	if !tg.births.trusted {
		return
	}
	drop := map[*placed]bool{}
	for p := range tg.placed {
		if p.birth != nil {
			drop[p] = true
		}
	}
	tg.births.trusted, tg.births.places = false, nil
	err := tg.proc.WriteMemory(make([]byte, 8), tg.area.Gate+birthsOff)
	if err == nil {
		err = tg.change(ctx, &changeset{drop: drop})
	}
	if err != nil && !errors.Is(err, tracee.ErrGone) {
		tg.bar(err.Error())
	}
}
