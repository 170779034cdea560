package probe

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"kprobe/fetch"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// target is one traced process. Used on the tracer thread only.
type target struct {
	s          *Session
	proc       *tracee.Process
	space      *symbols.Space
	patches    *patches
	opt        *optimizer
	actions    map[syscall.Signal]tracee.Sigaction // the program's, for faults in detours
	tap        *tap                                // as area
	area       *area                               // nil until the first probe is armed
	sites      map[symbols.Addr]*site              // by address
	bySlot     map[symbols.Addr]*site              // by the address of the copy
	calls      *calls
	threads    map[int]*thread
	funcs      map[symbols.Addr]*function    // decoded functions, by start
	barren     map[symbols.Addr]bool         // return addresses that can't carry a breakpoint
	chosen     map[symbols.Addr]symbols.Addr // what IFUNC resolvers answered
	stack      [2]symbols.Addr               // the mapping that sameStack looked up last
	placed     map[*placed]bool              // the probes that are armed
	leaving    *outgoing                     // what makes way in the change that is being planned
	retired    []*retired                    // what was taken out and may still be in use
	exitProbes []*exitProbe                  // the return probes of exits, those that were taken out too
	gone       map[*placed]bool              // probes whose library was unloaded
	libs       *libraries                    // the watch on the loader; nil: none
	// pending are definitions that wait until their file is mapped.
	pending     []*pendingDef
	child       bool // of a process of the session, followed
	borrowed    bool // shares the memory, sites and area of the process that made it
	dying       bool // killed by kprobe: its command could not be probed
	watching    bool // for calls that were missed for want of instances
	shadowStack bool // the program runs with shadow stacks: calls must be calls
	// faultSigs are the signals of which the net's table knows copies.
	faultSigs  map[syscall.Signal]bool
	openTraps  bool // its threads take SIGTRAP (tracee.Process.OpenTraps)
	netWatch   netWatch
	renewal    renewal
	noRoomHits int      // hits of detours in Go code whose stack had no room for them
	load       *loading // of an image that is new; nil for a process that was running
}

// thread is what the engine knows of a thread.
type thread struct {
	t      *tracee.Thread
	vector func() (*fetch.Vector, error)
	steps  bool // counted as one that executes a single instruction
	// post are the probes whose handlers are due when it has left the copy.
	post []*placed
	// A fault in a copy was shown to the program as one at the probed
	// instruction. If the program repairs the cause and returns there with
	// the same registers it goes on with the same hit.
	faulted     *site
	faultedRegs [17]uint64
}

func (tg *target) thread(t *tracee.Thread) *thread {
	th := tg.threads[t.TID()]
	if th == nil || th.t != t {
		th = &thread{t: t, vector: t.Vector}
		tg.threads[t.TID()] = th
	}
	return th
}

func (tg *target) threadOf(tid int) *thread { return tg.threads[tid] }

// forgetThread drops what hangs on a thread that ended.
func (tg *target) forgetThread(tid int) {
	th := tg.threads[tid]
	delete(tg.threads, tid)
	if tg.area == nil {
		return
	}
	if th != nil {
		th.noteStep(tg.area.file, false)
	}
	for _, st := range tg.sites {
		for _, p := range st.returns {
			for in := range p.pool.active {
				if in.tid == tid && !in.probe.goABI {
					tg.abandon(in)
				}
			}
		}
	}
}

// readLink answers %pd: what a descriptor of the process stands for.
func (tg *target) readLink(fd int) (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tg.proc.PID(), fd))
}

// sameStack reports whether two addresses lie in one mapping.
func (tg *target) sameStack(a, b symbols.Addr) bool {
	in := func(x symbols.Addr) bool { return x >= tg.stack[0] && x < tg.stack[1] }
	if !in(b) {
		maps, err := symbols.ReadMaps(tg.proc.PID())
		if err != nil {
			return false
		}
		for _, m := range maps {
			if b >= m.Start && b < m.End {
				tg.stack = [2]symbols.Addr{m.Start, m.End}
			}
		}
	}
	return in(a) && in(b)
}

// ensureArea lays kprobe's memory in the process, once.
func (tg *target) ensureArea(ctx context.Context) error {
	if tg.area != nil {
		return nil
	}
	if tg.s.opts.Touched != nil {
		tg.s.opts.Touched(tg.proc.PID())
	}
	a, err := newArea(ctx, tg.proc, tg.s.ringSize())
	if err != nil {
		return err
	}
	tg.area = a
	if tg.tap, err = newTap(tg.s, tg.proc.PID(), tg.space, a.file); err != nil {
		return err
	}
	tg.s.taps = append(tg.s.taps, tg.tap)
	for _, t := range tg.proc.Threads() {
		tg.noteComm(t)
	}
	if tg.s.running {
		tg.tap.start(context.WithoutCancel(tg.s.run))
	}
	return nil
}

// siteOfCopy returns the site in whose copy pc lies.
func (tg *target) siteOfCopy(pc symbols.Addr) *site {
	if tg.area == nil || tg.area.code.holds(pc) == nil {
		return nil
	}
	return tg.bySlot[pc&^(slotSize-1)]
}
