package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kprobe/probe/area"
	"kprobe/probe/detour"
	"kprobe/probe/loader"
	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a session lets go of its processes while nothing changes
//
// With Options.LetGo no process is traced longer than needed. Detours write records into the
// rings without the tracer, and the session reads the rings through its own mapping. The detours
// are those of probes that are left alone (detached.go): they test the gate, which is shut in
// forked children, ask the kernel before loads that may fault, and watch births. A process goes
// through these states:
//
//	traced    while probes are added or removed, and as long as something needs a tracer
//	          (keepsTracer)
//	let go    no thread is traced. Signals, births of threads and processes, and system calls
//	          cost as much as without kprobe, and another process may trace this one. The
//	          header still says that this kprobe owns the probes: no other kprobe removes them
//	          while this one lives
//	traced    again, for every change and for the removal of the probes (comeBack)
//
// While the process was let go of, signals were not held. So a signal handler may have
// interrupted a detour, and may return into it later. A change therefore waits until no handler
// can (settle), and removal does what recovery does (area.Area.Unheld). Forked children keep the
// jumps until the probes are removed; then they get clean text, too.
//
// WatchLetGo checks meanwhile whether the process has ended, executed a program, or loaded or
// unloaded libraries. With Options.Follow, forked children record, too (unattendedforks.go).

// unattended is what a session knows of a target that it may let go of.
type unattended struct {
	letGo  bool              // nobody traces it now
	was    bool              // it was let go of once, so signals were not held then
	open   bool              // it is traced again, and a handler may still return into a detour
	why    string            // the reason that was logged last why it stays traced
	next   time.Time         // it isn't let go of before
	pause  time.Duration     // how long the last change kept it traced
	looked time.Time         // when its mappings were last compared
	took   time.Duration     // how long that comparison took
	loader loader.Loader     // zero if no dynamic loader says what it loads
	moved  bool              // files were mapped or unmapped, and followLibraries has not run since
	before []*symbols.Module // the modules before that; nil: which of them remain isn't known
	judged time.Time         // when the last attempt to react to new seccomp rules was
	begin  []byte            // the first bytes of its memory file, which identify its memory
	forked *area.Forked      // processes that have a copy of its memory
	forks  forks
}

// Times of letting go.
const (
	letGoTick = 20 * time.Millisecond // how often processes that are let go of are checked
	letGoMaps = time.Second           // how often their mappings are compared
	// letGoWaits is how often mappings are compared while a definition waits for a library. If
	// comparing is slow, it is less often: it takes at most one part in letGoWaitsShare of a CPU.
	letGoWaits      = 100 * time.Millisecond
	letGoWaitsShare = 100
	// letGoSoon and letGoLate are the least and the longest time that a process stays traced
	// after a change. The time doubles with each change that follows soon. If the process can't
	// be let go of for a passing reason, the next attempt is letGoAgain later.
	letGoSoon  = 20 * time.Millisecond
	letGoLate  = 10 * time.Second
	letGoAgain = 200 * time.Millisecond
	letGoQuiet = 10 * time.Second // after this time without a change it is letGoSoon again
)

// standsAlone reports whether detours must work in processes that nobody traces.
func (s *Engine) standsAlone() bool { return s.Opts.Detach || s.LetsGo }

// keepsTracer is the reason why the target needs a tracer; "" if it needs none. later says that
// the reason will pass.
func (tg *Target) keepsTracer() (why string, later bool) {
	switch {
	case tg.loads():
		return "its program is still being loaded", true
	case tg.renewable() && tg.Renewal.tries < renewSoon:
		return "its threads' numbers aren't known yet", true
	case tg.tookOver:
		return "it shares the memory of a process that is gone", false
	case len(tg.Proc.StillSharers()) > 0:
		return "another process runs in its memory", true
	case tg.Reap(context.WithoutCancel(tg.Engine.Run)) > 0:
		return "what was taken out is still in use", true
	case tg.Child && tg.Engine.forksRecord():
		return "it is a child that was seen, and may execute a program", false
	case tg.Engine.forksRecord() && tg.Feed != nil && tg.Feed.Numbers != nil:
		return "its children's threads have numbers of another pid namespace", false
	case len(tg.Patches.noRoom) > 0:
		return "a goroutine's stack may have no room for a detour", false
	case len(tg.lost) > 0:
		return "some probes could not be put back", false
	}
	any := false
	for p := range tg.Placed {
		if p.Rarely().Birth != nil {
			continue
		}
		any = true
		// The first reason in alphabetical order, so that each call returns the same one.
		if x := tg.probeKeepsTracer(p); x != "" && (why == "" || x < why) {
			why = x
		}
	}
	if !any && !tg.awaited.any() {
		return "its probes are not in", true
	}
	return why, false
}

// probeKeepsTracer is the reason why a probe needs a tracer; "" if it needs none.
func (tg *Target) probeKeepsTracer(p *Placed) string {
	why := p.needsTracer()
	switch x := p.ByExits; {
	case why != "":
	case (tg.Params == nil || !tg.Params.Careful) && detour.Reads(p.Program):
		why = "its hits read memory, and seccomp rules may forbid the system calls for that"
	case tg.Engine.forksRecord() && detour.UsesPID(p.Program):
		why = "it looks at the number of its process, and children have others"
	case x != nil && x.Open != "":
		why = "its function goes on to where only a register says"
	default:
		return ""
	}
	return fmt.Sprintf("%s at %s: %s", p.Ev.Name, p.Where.Name(), why)
}

// tryLetGo lets go of the process if nothing needs a tracer.
func (tg *Target) tryLetGo(ctx context.Context) {
	b := &tg.unattended
	if !tg.Engine.LetsGo || b.letGo || tg.Engine.Closed || !tg.Engine.Running || !tg.IsMain() || tg.dying || tg.Area == nil || time.Now().Before(b.next) {
		return
	}
	why, later := tg.keepsTracer()
	if why == "" {
		why, later = tg.letGo(ctx)
	}
	if why == "" {
		memory.StoreTraced(tg.Area.File, memory.TracedNot, "")
		tg.Engine.Logf("process %d is let go of: nothing traces it while nothing changes", tg.Proc.PID())
		return
	}
	if tg.Area != nil {
		memory.StoreTraced(tg.Area.File, memory.TracedFor, why)
	}
	if later {
		b.next = time.Now().Add(letGoAgain)
	} else {
		b.next = time.Now().Add(letGoLate)
	}
	if !later && b.why != why {
		b.why = why
		tg.Engine.Logf("process %d stays traced: %s", tg.Proc.PID(), why)
	}
}

// postponeLetGo keeps the target traced for a while after a change: letGoSoon, and twice as long
// each time if changes follow each other.
func (tg *Target) postponeLetGo() {
	b, now := &tg.unattended, time.Now()
	if now.Sub(b.next) > letGoQuiet {
		b.pause = 0
	}
	b.pause = min(max(2*b.pause, letGoSoon), letGoLate)
	b.next = now.Add(b.pause)
}

// letGo lets go of the process. If it can't, why is the reason, and later says that the reason
// will pass.
func (tg *Target) letGo(ctx context.Context) (why string, later bool) {
	// Remove the loader's breakpoint: mappings are compared from time to time instead.
	b := &tg.unattended
	b.letGo = true
	tg.watchLibraries(ctx)
	b.letGo = false
	tg.Reap(ctx)
	defer func() {
		if why != "" {
			tg.watchLibraries(ctx)
		}
	}()
	for _, st := range tg.Sites {
		if st.Armed {
			return fmt.Sprintf("there is a breakpoint at %v", st.Addr), false
		}
	}
	if !tg.births.trusted || tg.Params != nil && !tg.births.ruled && tg.asks() {
		if err := tg.settle(ctx); err != nil {
			return err.Error(), true
		}
		tg.watchBirths(ctx)
	}
	if tg.Area == nil || tg.over {
		return "it is gone, or executes a program", true
	}
	begin := make([]byte, identity)
	copy(begin, tg.Area.File.Mem[tg.Area.File.Layout.Header.Off:])
	err := tg.Proc.Part(ctx, func(stopped []*tracee.Thread) error {
		tg.useSequences(stopped)
		return nil
	})
	if err != nil && tg.Proc.Parted() { // a thread ended before it was let go of
		tg.Engine.Logf("%v", err)
	} else if err != nil {
		tg.births.used = false
		tg.SetSequences()
		return err.Error(), errors.Is(err, tracee.ErrNotNow) || tracee.IgnoreLate(err) == nil || errors.Is(err, tracee.ErrGone)
	}
	b.letGo, b.was, b.why, b.begin, b.looked = true, true, "", begin, time.Now()
	b.loader, _ = loader.Running(tg.Space, tg.Proc) // a static program has none
	if b.forked == nil {
		b.forked = tg.Area.Forked()
		tg.beginForks()
	}
	tg.Area.Unheld = true
	tg.openTraps = false
	clear(tg.threads)
	tg.Engine.listLetGo()
	return "", false
}

// identity is the number of bytes at the beginning of the memory file that distinguish its mapping
// from another.
const identity = 8

// forgetBirths removes the jumps beside system calls that make tasks. The next letGo arms them
// anew.
func (tg *Target) forgetBirths(ctx context.Context) {
	if !tg.births.trusted && !tg.births.ruled {
		return
	}
	drop := map[*Placed]bool{}
	for p := range tg.Placed {
		if p.Rarely().Birth != nil {
			drop[p] = true
		}
	}
	tg.births.undo()
	var err error
	if tg.host == nil {
		err = tg.Proc.WriteMemory(make([]byte, 8), tg.Area.Gate+BirthsOff)
	}
	if err == nil && tg.Params.Known != 0 {
		err = tg.Proc.WriteMemory([]byte{0}, symbols.Addr(tg.Params.Known+detour.KnownState))
	}
	if err == nil {
		err = tg.change(ctx, &changeset{drop: drop})
	}
	if err != nil && !errors.Is(err, tracee.ErrGone) {
		tg.bar(err.Error())
	}
}
