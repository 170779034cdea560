package engine

import (
	"context"
	"fmt"
	"time"

	"kprobe/fetch"
	"kprobe/probe/area"
	"kprobe/probe/detour"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/probe/survey"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// addressSpace is an address space: what kprobe knows of it and has put into it. All processes that
// run in it hold the same addressSpace. One is the main: at first the process that was attached to
// or started. The others are children of vfork, posix_spawn and clone(CLONE_VM). Changes are made
// by the main. When the main ends or executes a program, another process becomes the main. The
// address space ends with its last process.
//
// All these processes execute the same text. So a change that needs the main's threads stopped
// needs those of the others stopped, too (WithStopped). A child's hits count as the main's: its
// detours write to the main's rings, and see the number of the parent's thread.
//
// It is used on the tracer's thread only.
type addressSpace struct {
	main        *Target
	Space       *symbols.Space
	Patches     *patches
	Params      *detour.Params // of its detours; nil until the first detour is planned
	faults      faultSignals
	Feed        *Feed                  // nil until the first probe is armed
	Area        *area.Area             // nil until the first probe is armed
	Sites       map[symbols.Addr]*Site // by address
	BySlot      map[symbols.Addr]*Site // by the address of the copy
	calls       *calls
	funcs       planner.Functions
	unpatchable map[symbols.Addr]bool         // return addresses that can't have a breakpoint
	callers     map[symbols.Addr]symbols.Addr // return address with a breakpoint → the call instruction before it
	chosen      map[symbols.Addr]symbols.Addr // IFUNC resolver → the implementation that it returned
	stack       [2]symbols.Addr               // bounds of the mapping that sameStack looked up last
	Placed      map[*Placed]bool              // the armed probes
	apart       map[*Placed]bool              // those of them with a watchpoint or a semaphore
	returning   int                           // how many of them have instances
	over        bool                          // the last process has ended
	text        uint64                        // number of changes of the text; a plan is valid for one such number
	around      *survey.Around                // what lies around functions
	found       foundPlaces                   // places found beforehand for definitions that are about to be added
	Retired     retirement                    // what was removed and may still be in use
	// suspects are calls that the last look found abandoned: by the address of the memory that
	// holds them, then by number.
	suspects   map[uint64]map[int]detour.Instance
	ExitProbes []*planner.ExitWay // ways of all return probes by exits, removed ones too
	lost       map[*Placed]bool   // probes that a failed change has removed and could not put back
	awaited    awaited
	unwatching bool // unwatch is running
	watching   bool // watchMissed is running
	// commonLooked is when common tables were last searched for abandoned calls.
	commonLooked time.Time
	shadowStack  bool // the program runs with shadow stacks, so a copy of a call must itself be a call
	openTraps    bool // SIGTRAP is unblocked in its threads (tracee.Process.OpenTraps)
	Renewal      renewal
	Semaphores   semaphores
	Registers    registers
	NoRoomHits   int // hits that the tracer took because a goroutine's stack had no room for a detour
	rollbacks    int // faults of detours that were rolled back
	effects      map[*planner.Stage]*effects
	// Steps is the number of instructions for which threads have been stepped.
	Steps int
	// barred is the reason why hits may not be taken in restartable sequences; "" if they may.
	barred   string
	births   births
	landings map[landingKey]*landing
	// building is set while detours are written at addresses that no other plan knows yet.
	building   bool
	holding    *holding  // memory for the plan of the change under way; nil: there is none
	left       leftSites // sites of probes that were left in the process before
	host       *host     // whose words the detours use; nil: their own
	plain      plainProgram
	reading    textWindow
	unattended unattended
	// inherited is the code that a forked child got from its parent's kprobe. Nothing leads there any more.
	inherited []plan.Range
	// lacks are definitions that have no place in the program, which the user was told.
	lacks map[*fetch.Def]bool
}

func newAddressSpace(space *symbols.Space) *addressSpace {
	return &addressSpace{
		Space: space, around: new(survey.Around), Patches: newPatches(), calls: newCalls(),
		faults: newFaultSignals(),
		Sites:  map[symbols.Addr]*Site{}, BySlot: map[symbols.Addr]*Site{},
		landings: map[landingKey]*landing{},
		funcs:    planner.Functions{}, unpatchable: map[symbols.Addr]bool{}, callers: map[symbols.Addr]symbols.Addr{}, chosen: map[symbols.Addr]symbols.Addr{},
		suspects: map[uint64]map[int]detour.Instance{}, Placed: map[*Placed]bool{}, apart: map[*Placed]bool{}, lost: map[*Placed]bool{},
	}
}

// leaveOut notes a definition that has no place in the program.
func (a *addressSpace) leaveOut(d *fetch.Def) {
	if a.lacks == nil {
		a.lacks = map[*fetch.Def]bool{}
	}
	a.lacks[d] = true
}

// armed notes an armed probe.
func (tg *Target) armed(p *Placed) {
	if !tg.Placed[p] && p.followed() {
		tg.returning++
	}
	tg.Placed[p] = true
	if p.data() != nil || p.semaphore() != 0 {
		tg.apart[p] = true
	}
}

// disarm forgets a probe that is armed no more.
func (tg *Target) disarm(p *Placed) {
	if tg.Placed[p] && p.followed() {
		tg.returning--
	}
	delete(tg.Placed, p)
	delete(tg.apart, p)
}

// IsMain reports whether this process is the main of its address space.
func (tg *Target) IsMain() bool { return tg.main == tg }

// Sharing makes the target of a child that shares the memory.
func (tg *Target) Sharing(child *tracee.Process) *Target {
	return &Target{Engine: tg.Engine, Proc: child, addressSpace: tg.addressSpace, Child: true, threads: map[int]*thread{}}
}

// TakeSharers adds the processes that share the target's memory to the session's targets.
func (tg *Target) TakeSharers() {
	for _, q := range tg.Proc.Sharers() {
		tg.Engine.Targets[q.PID()] = tg.Sharing(q)
	}
}

// LeaveSpace removes a process that has ended or executed a program from its address space. If it
// was the main, another process becomes the main. Nothing is written to the text.
func (tg *Target) LeaveSpace() {
	if !tg.IsMain() {
		tg.SetSequences()
		return
	}
	for _, q := range tg.Engine.Targets {
		// The tracer has chosen this process as the one whose memory the others share.
		if q != tg && q.addressSpace == tg.addressSpace && q.Proc.SharesMemory() == nil {
			if err := q.takeOver(tg); err != nil {
				tg.Engine.Warnf("process %d, in the memory of %d, which is gone: %v", q.Proc.PID(), tg.Proc.PID(), err)
			}
			return
		}
	}
	tg.drop()
}

// takeOver makes the process the main of its address space, after old.
func (tg *Target) takeOver(old *Target) error {
	tg.main, tg.tookOver = tg, true
	tg.Load, tg.dying = old.Load, old.dying
	for p := range tg.Placed {
		p.target = tg
	}
	space, err := tg.Engine.files.OpenProcess(tg.Proc.PID(), tg.Proc)
	if err != nil {
		return err
	}
	tg.Space = space
	if tg.Area == nil {
		return nil
	}
	tg.bar("its threads may have the areas of those that are gone")
	return tg.Area.MoveTo(tg.Proc)
}

// threadOf finds a thread that runs in the address space by its number; nil if there is none.
func (tg *Target) threadOf(tid int) *thread {
	for _, q := range tg.Engine.Targets {
		if q.addressSpace == tg.addressSpace && q.threads[tid] != nil {
			return q.threads[tid]
		}
	}
	return nil
}

// WithStopped stops the threads of all processes that run in the address space, and calls fn with
// them. See tracee.Process.WithStopped.
func (tg *Target) WithStopped(ctx context.Context, fn func([]*tracee.Thread) error) error {
	p := tg.main.Proc
	return p.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		return p.WithSharers(ctx, stopped, fn)
	})
}

// allStopped reports whether stopped has all threads that run in the target's memory.
func (tg *Target) allStopped(stopped []*tracee.Thread) bool {
	n := len(tg.main.Proc.Threads())
	for _, q := range tg.main.Proc.Sharers() {
		n += len(q.Threads())
	}
	return len(stopped) == n
}

// lateUnder returns an error if a thread that could not be stopped may continue under a jump that is
// about to be written or removed. Such a thread waits there in the kernel, or its place isn't known
// because it gets no processor.
func (tg *Target) lateUnder(list []*Patch) error {
	for _, t := range tg.main.Proc.AllLate() {
		pc, ok := t.WaitsAt()
		if !ok {
			return fmt.Errorf("thread %d could not be stopped: is the machine overloaded?", t.TID())
		}
		for _, p := range list {
			for q := p; q != nil; q = q.island {
				if uint64(pc) > q.Plan.At && uint64(pc) < q.Plan.End() || uint64(pc) == q.Plan.LongJump() {
					return fmt.Errorf("thread %d waits in the kernel, uninterruptibly, where a jump was to be", t.TID())
				}
			}
		}
	}
	return nil
}
