package engine

import (
	"context"
	"fmt"
	"time"

	"kprobe/probe/area"
	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/survey"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// addressSpace is an address space with what kprobe knows of it and has put into
// it. Every process that runs in it holds the same one: the one that was attached to
// or started, which is its main, and children of vfork, posix_spawn and
// clone(CLONE_VM). Changes are made by the main; when it ends or executes a program
// another takes its place, and with the last process the address space is gone.
//
// What is written into the text all of them execute, so whoever needs the threads
// of the main to stand still needs those of the others, too (withStopped). A child's
// hits are the main's: its jumps write the main's rings, and know no other number
// than that of the parent's thread.
//
// Used on the tracer thread only.
type addressSpace struct {
	main        *Target
	Space       *symbols.Space
	Patches     *patches
	Params      *detour.Params // of its detours; nil until the first is planned
	faults      faultSignals
	Feed        *Feed                  // as area
	Area        *area.Area             // nil until the first probe is armed
	Sites       map[symbols.Addr]*Site // by address
	BySlot      map[symbols.Addr]*Site // by the address of the copy
	calls       *calls
	funcs       planner.Functions
	unpatchable map[symbols.Addr]bool         // return addresses that can't carry a breakpoint
	chosen      map[symbols.Addr]symbols.Addr // what IFUNC resolvers answered
	stack       [2]symbols.Addr               // the mapping that sameStack looked up last
	Placed      map[*Placed]bool              // the probes that are armed
	over        bool                          // its last process has ended
	text        uint64                        // how often the text has been changed: a plan is of one such state
	around      *survey.Around                // what lies around functions
	found       foundPlaces                   // of definitions that are about to be added
	Retired     retirement                    // what was taken out and may still be in use
	// suspects are calls, by where they are noted, that the last look found abandoned.
	suspects   map[uint64]map[int]detour.Instance
	ExitProbes []*planner.ExitWay // the return probes of exits, those that were taken out too
	lost       map[*Placed]bool   // probes that a change has taken out and could not put back
	awaited    awaited
	unwatching bool // breakpoints where functions are left are being taken away
	watching   bool // for calls that were missed for want of instances
	// commonLooked is when calls that were left were looked for in tables in common.
	commonLooked time.Time
	shadowStack  bool // the program runs with shadow stacks: calls must be calls
	openTraps    bool // its threads take SIGTRAP (tracee.Process.OpenTraps)
	Renewal      renewal
	Semaphores   semaphores
	Registers    registers
	NoRoomHits   int // hits of detours in Go code whose stack had no room for them
	rollbacks    int // faults of detours whose hits were taken by the tracer
	// barred says why no hits are taken in restartable sequences any more; "": they may be.
	barred     string
	births     births
	left       leftSites // of probes that were left before
	plain      plainProgram
	reading    textWindow
	unattended unattended
	// inherited is where code of a parent's kprobe lies, which nothing leads to any more.
	inherited map[symbols.Addr]bool
}

func newAddressSpace(space *symbols.Space) *addressSpace {
	return &addressSpace{
		Space: space, around: new(survey.Around), Patches: newPatches(), calls: newCalls(),
		faults: newFaultSignals(),
		Sites:  map[symbols.Addr]*Site{}, BySlot: map[symbols.Addr]*Site{},
		funcs: planner.Functions{}, unpatchable: map[symbols.Addr]bool{}, chosen: map[symbols.Addr]symbols.Addr{},
		suspects: map[uint64]map[int]detour.Instance{}, Placed: map[*Placed]bool{}, lost: map[*Placed]bool{},
	}
}

// IsMain reports whether changes of the address space are this process's to make.
func (tg *Target) IsMain() bool { return tg.main == tg }

// Sharing makes the target of a child that shares the memory.
func (tg *Target) Sharing(child *tracee.Process) *Target {
	return &Target{Engine: tg.Engine, Proc: child, addressSpace: tg.addressSpace, Child: true, threads: map[int]*thread{}}
}

// TakeSharers makes targets of the processes that run in the target's memory.
func (tg *Target) TakeSharers() {
	for _, q := range tg.Proc.Sharers() {
		tg.Engine.Targets[q.PID()] = tg.Sharing(q)
	}
}

// LeaveSpace takes a process that has ended, or has executed a program, from its
// address space. Nothing is written. If it was the main another process takes its
// place.
func (tg *Target) LeaveSpace() {
	if !tg.IsMain() {
		tg.SetSequences()
		return
	}
	for _, q := range tg.Engine.Targets {
		// The tracer has chosen: the others share the memory of this one.
		if q != tg && q.addressSpace == tg.addressSpace && q.Proc.SharesMemory() == nil {
			if err := q.takeOver(tg); err != nil {
				tg.Engine.Warnf("process %d, in the memory of %d, which is gone: %v", q.Proc.PID(), tg.Proc.PID(), err)
			}
			return
		}
	}
	tg.drop()
}

// takeOver makes the process the main of its address space after another.
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

// threadOf gives what is known of a thread that runs in the address space; nil if
// none with that number does.
func (tg *Target) threadOf(tid int) *thread {
	for _, q := range tg.Engine.Targets {
		if q.addressSpace == tg.addressSpace && q.threads[tid] != nil {
			return q.threads[tid]
		}
	}
	return nil
}

// WithStopped is Process.WithStopped of the main, with the threads of the processes
// that share its memory stopped, too, and given to fn.
func (tg *Target) WithStopped(ctx context.Context, fn func([]*tracee.Thread) error) error {
	p := tg.main.Proc
	return p.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		return p.WithSharers(ctx, stopped, fn)
	})
}

// allStopped reports whether the threads that are stopped are all that run in
// the target's memory.
func (tg *Target) allStopped(stopped []*tracee.Thread) bool {
	n := len(tg.main.Proc.Threads())
	for _, q := range tg.main.Proc.Sharers() {
		n += len(q.Threads())
	}
	return len(stopped) == n
}

// lateUnder finds a thread that could not be stopped and may go on under a jump
// that is about to be written or taken out: one that waits there, or of which
// nobody knows where it is as it gets no processor.
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
