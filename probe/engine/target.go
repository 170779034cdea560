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

// Target is one traced process. Used on the tracer thread only.
type Target struct {
	Engine *Engine
	Proc   *tracee.Process
	// What it shares with the processes that run in its memory.
	*addressSpace
	threads map[int]*thread
	Child   bool // of a process of the session, followed
	// tookOver: it is the main of an address space after another process.
	tookOver bool
	dying    bool     // killed by kprobe: its command could not be probed
	Load     *Loading // of an image that is new; nil for a process that was running
	// errnoOff is how far from a thread's pointer its errno is, in sessions that inject errors.
	errnoOff int32
	calledAt []byte // callsOf's
}

// thread is what the engine knows of a thread.
type thread struct {
	t      *tracee.Thread
	vector func() (*fetch.Vector, error)
	steps  bool // counted as one that executes a single instruction
	// post are the probes whose handlers are due when it has left the copy.
	post []*Placed
	// A fault in a copy was shown to the program as one at the probed
	// instruction. If the program repairs the cause and returns there with
	// the same registers it goes on with the same hit.
	faulted     *Site
	faultedRegs [17]uint64
	forced      uint64 // signals that it was seen to block when the kernel forced them
	laid        int    // how often the fallback handler had been laid again then
}

func (tg *Target) thread(t *tracee.Thread) *thread {
	th := tg.threads[t.TID()]
	if th == nil || th.t != t {
		th = &thread{t: t, vector: t.Vector}
		tg.threads[t.TID()] = th
	}
	return th
}

// forgetThread drops what hangs on a thread that ended.
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
		if !in.Probe.GoABI { // a goroutine goes on in another
			tg.abandon(in)
		}
	}
}

// readLink answers %pd: what a descriptor of the process stands for.
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

// ensureArea lays kprobe's memory in the process, once: for so many probes, and as many
// again.
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

// layoutFor is what a memory file is laid out for: so many probes, and as many again.
func (s *Engine) layoutFor(probes int) ring.Params {
	p := ring.ForProbes(probes)
	p.RingSize, p.Rows = s.ringSize(), s.rows()
	if s.Opts.Detach {
		p.Overwrite, p.Book, p.Spare = true, bookRoom, s.Triggers.Snapshots
		if s.Opts.Keep != "" {
			p.Compact(probes)
		}
		if p.RingSize != 0 {
			p.RingSize = max(p.RingSize, ring.MinOverwrite)
		}
	}
	return p
}

// manyMore is how many places room is made for where a pattern waits.
const manyMore = 1 << 17

// mayCome is how many places may come that nobody has counted: a pattern waits for a
// program's or a library's first instructions.
func (tg *Target) mayCome() int {
	if tg.awaited.anyGlob() {
		return manyMore
	}
	return 0
}

// siteOfCopy returns the site in whose copy pc lies.
func (tg *Target) siteOfCopy(pc symbols.Addr) *Site {
	if tg.Area == nil || tg.Area.Code.Holds(pc) == nil {
		return nil
	}
	return tg.BySlot[pc&^(memory.SlotSize-1)]
}
