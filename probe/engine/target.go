package engine

import (
	"context"
	"os"
	"strconv"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/probe/area"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Target is one process of the session. It is used on the tracer's thread only.
type Target struct {
	Engine *Engine
	Proc   *tracee.Process
	// The processes that run in the same memory share their addressSpace.
	*addressSpace
	threads map[int]*thread
	Child   bool // it is a child of a process of the session
	// tookOver says that it became the main of its address space after another process.
	tookOver bool
	dying    bool     // kprobe has killed it, because its command could not be probed
	Load     *Loading // nil if the process was running when kprobe attached to it
	// errnoOff is the distance of a thread's errno from its thread pointer, in sessions that
	// inject errors.
	errnoOff int32
	calledAt []byte // buffer of callsOf
}

// thread is what the engine knows of a thread.
type thread struct {
	t      *tracee.Thread
	vector func() (*fetch.Vector, error)
	steps  bool // it is counted as being stepped (noteStep)
	// post are the probes whose post handlers must be called when it has left the copy.
	post []*Placed
	// faulted is a site whose instruction has faulted, as the program sees it; nil: none. If the
	// program repairs the cause and returns there with the same registers, the same hit goes on.
	faulted     *Site
	faultedRegs [17]uint64
	forced      uint64 // signals that it blocked when the kernel forced them; signal n has bit n-1
	laid        int    // FallbackWatch.laid of the signal at that time
}

func (tg *Target) thread(t *tracee.Thread) *thread {
	th := tg.threads[t.TID()]
	if th == nil || th.t != t {
		th = &thread{t: t, vector: t.Vector}
		tg.threads[t.TID()] = th
	}
	return th
}

// forgetThread forgets a thread that has ended, and abandons its calls.
func (tg *Target) forgetThread(tid int) {
	th := tg.threads[tid]
	delete(tg.threads, tid)
	if tg.Area == nil {
		return
	}
	if th != nil {
		th.noteStep(tg.Area.File, false)
	}
	for _, in := range tg.calls.Of(tid) {
		if !in.Probe.GoABI { // a goroutine goes on in another thread
			tg.abandon(in)
		}
	}
}

// readLink reads what a descriptor of the process refers to, for %pd.
func (tg *Target) readLink(fd int) (string, error) {
	return os.Readlink(procfs.Image(tg.Proc.PID()).Path("fd/" + strconv.Itoa(fd)))
}

// sameStack reports whether two addresses lie in one mapping.
func (tg *Target) sameStack(a, b symbols.Addr) bool {
	in := func(x symbols.Addr) bool { return x >= tg.stack[0] && x < tg.stack[1] }
	if !in(b) {
		maps, err := symbols.ReadMaps(tg.Proc.PID())
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

// ensureArea maps kprobe's memory in the process, once. It has room for twice as many probes.
func (tg *Target) ensureArea(ctx context.Context, probes int) error {
	if tg.Area != nil {
		return nil
	}
	if tg.Engine.Opts.Touched != nil {
		tg.Engine.Opts.Touched(tg.Proc.PID())
	}
	a, err := area.New(ctx, tg.Proc, tg.Engine.layoutFor(probes), tg.Engine.Opts.Keep)
	if err != nil {
		return err
	}
	tg.Area = a
	switch {
	case tg.Engine.Stays != "":
		memory.StoreTraced(a.File, memory.TracedFor, tg.Engine.Stays)
	case tg.Engine.LetsGo:
		memory.StoreTraced(a.File, memory.TracedFor, "its probes are being put in")
	}
	if tg.Engine.standsAlone() {
		if err := a.LayGate(ctx, tg.Engine.forksRecord()); err != nil {
			return err
		}
	}
	if tg.Engine.LetsGo {
		if err := tg.openGate(); err != nil {
			return err
		}
	}
	if tg.Feed, err = newFeed(tg.Engine, tg.Proc.PID(), tg.Space, a.File); err != nil {
		return err
	}
	if err := tg.layControl(); err != nil {
		return err
	}
	tg.Engine.Feeds = append(tg.Engine.Feeds, tg.Feed)
	for _, t := range tg.Proc.Threads() {
		tg.noteComm(t)
	}
	if tg.Engine.Running {
		tg.Feed.Start(context.WithoutCancel(tg.Engine.Run))
	}
	return nil
}

// layoutFor is the layout of a memory file with room for twice as many probes.
func (s *Engine) layoutFor(probes int) ring.Params {
	p := ring.ForProbes(probes)
	p.RingSize, p.Rows = s.ringSize(), s.rows()
	if s.Opts.Detach {
		p.Overwrite, p.Book, p.Spare = true, bookRoom, s.Triggers.Snapshots
		if s.Opts.Keep != "" {
			p.Compact(probes)
		} else {
			p.Dumped(probes)
		}
		if p.RingSize != 0 {
			p.RingSize = max(p.RingSize, ring.MinOverwrite)
		}
	}
	return p
}

// manyMore is the number of places for which room is made if a pattern waits.
const manyMore = 1 << 17

// mayCome is the number of places that may be added later by patterns that wait for their library.
func (tg *Target) mayCome() int {
	if tg.awaited.anyGlob() {
		return manyMore
	}
	return 0
}

// siteOfCopy returns the site in whose copy pc lies; nil if there is none.
func (tg *Target) siteOfCopy(pc symbols.Addr) *Site {
	if tg.Area == nil || tg.Area.Code.Holds(pc) == nil {
		return nil
	}
	return tg.BySlot[pc&^(memory.SlotSize-1)]
}
