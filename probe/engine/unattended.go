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
// With Options.LetGo no process is traced longer than needed. Jumps record by themselves into
// the rings, and the session reads the rings in its own mapping of them. Their detours are
// those of probes that are left alone (detached.go): they test the gate, which forked children
// find shut, ask the kernel before loads that may fault, and watch births.
//
//	traced    while probes come and go, and as long as something needs a tracer (keepsTracer)
//	let go    no thread is traced: signals, births of threads and processes, and system calls
//	          cost as much as without kprobe, and others may trace the process. The header still
//	          says that this kprobe owns the probes: nobody else removes them while it lives,
//	          and any other kprobe may once it doesn't
//	traced    again, for every change, and to remove the probes (comeBack)
//
// Signals were not held while the process was let go of: a handler may have interrupted a
// detour and return there later. So a change waits until no handler will (settle), and removal
// does what recovery does (area.Area.Unheld). Forked children kept the jumps, and are made
// clean when the probes are removed.
//
// watchLetGo looks at what the process does meanwhile: whether it lives, executes a program,
// loads or unloads libraries. With Options.Follow forked children record, too
// (unattendedforks.go).

// unattended is what a session knows of a target that it may let go of.
type unattended struct {
	letGo  bool      // nobody traces it
	was    bool      // it was let go of once: signals were not held
	open   bool      // since it was seized again a handler may still return into a detour
	why    string    // it is traced for now, as was told last
	next   time.Time // it isn't tried before
	pause  time.Duration
	looked time.Time         // when its mappings were compared last
	took   time.Duration     // by that
	loader loader.Loader     // its fields are 0 where none tells what it loads
	moved  bool              // files were mapped or unmapped, and nothing was done about it yet
	before []*symbols.Module // those that there were then; nil: it isn't known which are still there
	judged time.Time         // when it was last tried to do something about its rules of seccomp
	begin  []byte            // of the memory file, by which its memory is known
	forked *area.Forked
	forks  forks
}

// Times of letting go.
const (
	letGoTick = 20 * time.Millisecond // how often processes that are let go of are looked at
	letGoMaps = time.Second           // and their mappings
	// letGoWaits is how often mappings are looked at while a definition waits for a library,
	// or so seldom that it takes one part in letGoWaitsShare of a CPU.
	letGoWaits      = 100 * time.Millisecond
	letGoWaitsShare = 100
	// letGoSoon and letGoLate bound how long a process stays traced after a change: longer
	// where changes come often. Where it couldn't be let go of at the moment it is tried
	// letGoAgain later.
	letGoSoon  = 20 * time.Millisecond
	letGoLate  = 10 * time.Second
	letGoAgain = 200 * time.Millisecond
	letGoQuiet = 10 * time.Second // after so long without a change it is soon again
)

// standsAlone reports whether detours are built for processes that nobody traces.
func (s *Engine) standsAlone() bool { return s.Opts.Detach || s.LetsGo }

// keepsTracer says what needs a tracer; "": nothing does. later says that this passes.
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
		if p.Birth != nil {
			continue
		}
		any = true
		// The least of the reasons, so that it is the same each time it is asked for.
		if x := tg.probeKeepsTracer(p); x != "" && (why == "" || x < why) {
			why = x
		}
	}
	if !any && !tg.awaited.any() {
		return "its probes are not in", true
	}
	return why, false
}

// probeKeepsTracer says why a probe needs a tracer; "": it doesn't.
func (tg *Target) probeKeepsTracer(p *Placed) string {
	why := p.needsTracer()
	switch x := p.ByExits; {
	case why != "":
	case (tg.Params == nil || !tg.Params.Careful) && detour.Reads(p.Program):
		why = "its hits read memory, and rules of seccomp judge system calls"
	case tg.Engine.forksRecord() && detour.UsesPID(p.Program):
		why = "it looks at the number of its process, and children have others"
	case x != nil && x.Open != "":
		why = "its function goes on to where only a register says"
	default:
		return ""
	}
	return fmt.Sprintf("%s at %s: %s", p.Ev.Name, p.Where.Name, why)
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

// postponeLetGo has the target stay traced for a while.
func (tg *Target) postponeLetGo() {
	b, now := &tg.unattended, time.Now()
	if now.Sub(b.next) > letGoQuiet {
		b.pause = 0
	}
	b.pause = min(max(2*b.pause, letGoSoon), letGoLate)
	b.next = now.Add(b.pause)
}

// letGo lets go of the process, or says why not, and whether that passes.
func (tg *Target) letGo(ctx context.Context) (why string, later bool) {
	// Libraries are looked for now and then.
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
	if !tg.births.trusted {
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
	if err != nil && tg.Proc.Parted() { // a thread was gone before it was let go of
		tg.Engine.Logf("%v", err)
	} else if err != nil {
		tg.births.used = false
		tg.SetSequences()
		return err.Error(), errors.Is(err, tracee.ErrNotNow) || tracee.IgnoreLate(err) == nil || errors.Is(err, tracee.ErrGone)
	}
	b.letGo, b.was, b.why, b.begin, b.looked = true, true, "", begin, time.Now()
	b.loader, _ = loader.Running(tg.Space, tg.Proc) // of a static program there is none
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

// identity is how many bytes of the memory file's beginning tell its mapping from another.
const identity = 8

// forgetBirths takes the jumps beside system calls that make tasks out again: they are to be
// laid anew.
func (tg *Target) forgetBirths(ctx context.Context) {
	if !tg.births.trusted {
		return
	}
	drop := map[*Placed]bool{}
	for p := range tg.Placed {
		if p.Birth != nil {
			drop[p] = true
		}
	}
	tg.births.undo()
	err := tg.Proc.WriteMemory(make([]byte, 8), tg.Area.Gate+BirthsOff)
	if err == nil {
		err = tg.change(ctx, &changeset{drop: drop})
	}
	if err != nil && !errors.Is(err, tracee.ErrGone) {
		tg.bar(err.Error())
	}
}
