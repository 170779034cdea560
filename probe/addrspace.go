package probe

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"kprobe/probe/area"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
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
	main        *target
	space       *symbols.Space
	patches     *patches
	params      *detour.Params                      // of its detours; nil until the first is planned
	actions     map[syscall.Signal]tracee.Sigaction // the program's, for faults in detours
	feed        *feed                               // as area
	area        *area.Area                          // nil until the first probe is armed
	sites       map[symbols.Addr]*site              // by address
	bySlot      map[symbols.Addr]*site              // by the address of the copy
	calls       *calls
	funcs       map[symbols.Addr]*assess.Function // decoded functions, by start
	unpatchable map[symbols.Addr]bool             // return addresses that can't carry a breakpoint
	chosen      map[symbols.Addr]symbols.Addr     // what IFUNC resolvers answered
	stack       [2]symbols.Addr                   // the mapping that sameStack looked up last
	placed      map[*placed]bool                  // the probes that are armed
	over        bool                              // its last process has ended
	text        uint64                            // how often the text has been changed: a plan is of one such state
	around      *survey.Around                    // what lies around functions
	found       foundPlaces                       // of definitions that are about to be added
	retired     []*retired                        // what was taken out and may still be in use
	exitProbes  []*exitProbe                      // the return probes of exits, those that were taken out too
	stuck       []*site                           // sites without a use whose int3 could not be taken out
	lost        map[*placed]bool                  // probes that a change has taken out and could not put back
	gone        map[*placed]bool                  // probes whose library was unloaded
	libs        *libraries                        // the watch on the loader; nil: none
	// pending are definitions that wait until their file is mapped.
	pending    []*pendingDef
	unwatching bool // breakpoints where functions are left are being taken away
	watching   bool // for calls that were missed for want of instances
	// commonLooked is when calls that were left were looked for in tables in common.
	commonLooked time.Time
	shadowStack  bool // the program runs with shadow stacks: calls must be calls
	// faultSigs are the signals of which the fallback handler's table knows copies.
	faultSigs     map[syscall.Signal]bool
	detours       bool // jumps have been there, whose detours may fault
	openTraps     bool // its threads take SIGTRAP (tracee.Process.OpenTraps)
	fallbackWatch fallbackWatch
	renewal       renewal
	semaphores    semaphores
	registers     registers
	noRoomHits    int // hits of detours in Go code whose stack had no room for them
	rollbacks     int // faults of detours whose hits were taken by the tracer
	// barred says why no hits are taken in restartable sequences any more; "": they may be.
	barred     string
	births     births
	left       leftSites // of probes that were left before
	plain      plainProgram
	reading    textWindow
	unattended unattended
	// inherited is where code of a parent's kprobe lies, which nothing leads to any more.
	inherited map[symbols.Addr]bool
	// ignoring are the signals that the program ignored when that was looked at last,
	// bit by number less one; ignored those and the ones of the time before.
	ignoring, ignored uint64
}

func newAddressSpace(space *symbols.Space) *addressSpace {
	return &addressSpace{
		space: space, around: new(survey.Around), patches: newPatches(), calls: newCalls(),
		actions: map[syscall.Signal]tracee.Sigaction{}, faultSigs: map[syscall.Signal]bool{},
		sites: map[symbols.Addr]*site{}, bySlot: map[symbols.Addr]*site{},
		funcs: map[symbols.Addr]*assess.Function{}, unpatchable: map[symbols.Addr]bool{}, chosen: map[symbols.Addr]symbols.Addr{},
		placed: map[*placed]bool{}, gone: map[*placed]bool{}, lost: map[*placed]bool{},
	}
}

// isMain reports whether changes of the address space are this process's to make.
func (tg *target) isMain() bool { return tg.main == tg }

// sharing makes the target of a child that shares the memory.
func (tg *target) sharing(child *tracee.Process) *target {
	return &target{s: tg.s, proc: child, addressSpace: tg.addressSpace, child: true, threads: map[int]*thread{}}
}

// leaveSpace takes a process that has ended, or has executed a program, from its
// address space. Nothing is written. If it was the main another process takes its
// place.
func (tg *target) leaveSpace() {
	if !tg.isMain() {
		tg.setSequences()
		return
	}
	for _, q := range tg.s.targets {
		// The tracer has chosen: the others share the memory of this one.
		if q != tg && q.addressSpace == tg.addressSpace && q.proc.SharesMemory() == nil {
			if err := q.takeOver(tg); err != nil {
				tg.s.warnf("process %d, in the memory of %d, which is gone: %v", q.proc.PID(), tg.proc.PID(), err)
			}
			return
		}
	}
	tg.drop()
}

// takeOver makes the process the main of its address space after another.
func (tg *target) takeOver(old *target) error {
	tg.main, tg.tookOver = tg, true
	tg.load, tg.dying = old.load, old.dying
	for p := range tg.placed {
		p.target = tg
	}
	space, err := tg.s.files.OpenProcess(tg.proc.PID(), tg.proc)
	if err != nil {
		return err
	}
	tg.space = space
	if tg.area == nil {
		return nil
	}
	tg.bar("its threads may have the areas of those that are gone")
	return tg.area.MoveTo(tg.proc)
}

// threadOf gives what is known of a thread that runs in the address space; nil if
// none with that number does.
func (tg *target) threadOf(tid int) *thread {
	for _, q := range tg.s.targets {
		if q.addressSpace == tg.addressSpace && q.threads[tid] != nil {
			return q.threads[tid]
		}
	}
	return nil
}

// withStopped is Process.WithStopped of the main, with the threads of the processes
// that share its memory stopped, too, and given to fn.
func (tg *target) withStopped(ctx context.Context, fn func([]*tracee.Thread) error) error {
	p := tg.main.proc
	return p.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		return p.WithSharers(ctx, stopped, fn)
	})
}

// allStopped reports whether the threads that are stopped are all that run in
// the target's memory.
func (tg *target) allStopped(stopped []*tracee.Thread) bool {
	n := len(tg.main.proc.Threads())
	for _, q := range tg.main.proc.Sharers() {
		n += len(q.Threads())
	}
	return len(stopped) == n
}

// lateUnder finds a thread that could not be stopped and may go on under a jump
// that is about to be written or taken out: one that waits there, or of which
// nobody knows where it is as it gets no processor.
func (tg *target) lateUnder(list []*patch) error {
	for _, t := range tg.main.proc.AllLate() {
		pc, ok := t.WaitsAt()
		if !ok {
			return fmt.Errorf("thread %d could not be stopped: is the machine overloaded?", t.TID())
		}
		for _, p := range list {
			for q := p; q != nil; q = q.island {
				if uint64(pc) > q.plan.At && uint64(pc) < q.plan.End() || uint64(pc) == q.plan.LongJump() {
					return fmt.Errorf("thread %d waits in the kernel, uninterruptibly, where a jump was to be", t.TID())
				}
			}
		}
	}
	return nil
}
