package probe

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/debugreg"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Watchpoints
//
// A watchpoint is a probe of memory: the processor's debug registers trap behind an
// instruction that has read or written it. Nothing is written to the process; every
// thread gets the registers in a stop (probe/tracee/debugregs.go). There are four,
// so a probe that is switched off gives its register back. In states:
//
//	noted    the memory file says that registers may be set, so that the fallback
//	         handler leads on who traps when no tracer lives
//	watched  the threads have the registers
//	left     they were taken from every thread, when the session leaves or by who
//	         recovers; only then the fallback handler may go
//
// A thread that could not be stopped has them until it stops. While there is one
// the fallback handler stays, and all that it needs.

// watchpoint is what a probe watches.
type watchpoint struct {
	at     symbols.Addr // NoData: nothing yet
	length int
	reads  bool // reads and writes are trapped
	only   bool // reads are wanted, and no writes
	last   uint64
	known  bool // last is what the memory held when it was looked at last
	said   bool // that the instruction isn't always known
}

// registers are the debug registers of an address space.
type registers struct {
	slots [debugreg.MaxRegisters]*placed
}

// resolveWatch finds what a definition watches in the target.
func (tg *target) resolveWatch(d *fetch.Def, ev *event) ([]patchRequest, error) {
	if tg.s.inject != nil {
		return nil, d.Error(fetch.BadProbeAddr, "memory makes no calls", nil)
	}
	m, prog, err := assess.Watch(tg.space, d, tg.proc, tg.s.opts.MaxText)
	if err != nil {
		return nil, err
	}
	w := &watchpoint{at: m.Site.Addr, length: m.Length, reads: m.Reads, only: m.Only}
	p := &placed{ev: ev, def: d, prog: prog, target: tg, where: &m.Site, data: w, course: course{tactic: plan.DebugRegister}}
	return []patchRequest{{Place: &assess.Place{Site: m.Site}, p: p, kind: requestWatch}}, nil
}

// watchers lists the watchpoints that want a register, those first that came first.
func (tg *target) watchers(fresh []*placed, drop map[*placed]bool) (list []*placed) {
	for _, p := range slices.Concat(slices.Collect(maps.Keys(tg.placed)), fresh) {
		if p.data != nil && !drop[p] && p.data.at != symbols.Addr(symbols.NoData) && !p.feed.disabled(p) && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *placed) int { return cmp.Compare(a.seq, b.seq) })
	return list
}

// changeWatches gives a change's watchpoints their registers, and takes those of the
// ones that go. undo gives back what there was.
func (tg *target) changeWatches(ctx context.Context, c *changeset) (undo func(), err error) {
	was := tg.registers.slots
	next, err := assign(was, tg.watchers(c.fresh, c.drop))
	if err != nil {
		return nil, err
	}
	if err := tg.setWatches(ctx, next); err != nil {
		return nil, err
	}
	tg.s.listWatched(c)
	return func() {
		if err := tg.setWatches(ctx, was); err != nil {
			tg.s.warnf("watchpoints of process %d: %v", tg.proc.PID(), err)
		}
	}, nil
}

// assign gives each a register; who has one keeps it. The error is *debugreg.FullError.
func assign(was [debugreg.MaxRegisters]*placed, list []*placed) (next [debugreg.MaxRegisters]*placed, err error) {
	for i, p := range was {
		if slices.Contains(list, p) {
			next[i] = p
		}
	}
	for _, p := range list {
		if slices.Contains(next[:], p) {
			continue
		}
		i := slices.Index(next[:], nil)
		if i < 0 {
			full := &debugreg.FullError{Wanted: p.ev.Group + "/" + p.ev.Name}
			for _, q := range next {
				full.Held = append(full.Held, q.ev.Group+"/"+q.ev.Name)
			}
			return was, full
		}
		next[i] = p
	}
	return next, nil
}

// setWatches gives the registers to every thread that runs in the target's memory.
func (tg *target) setWatches(ctx context.Context, next [debugreg.MaxRegisters]*placed) error {
	tg = tg.main
	was := tg.registers.slots
	if next == was || tg.area == nil {
		return nil
	}
	none := next == [debugreg.MaxRegisters]*placed{}
	noted := tg.area.File.Layout.Header.Off + memory.HeaderWatched
	if !none {
		if err := tg.takeTraps(ctx); err != nil {
			return err
		}
		if err := tg.area.File.Set64(noted, 1); err != nil {
			return err
		}
	}
	set := func(slots [debugreg.MaxRegisters]*placed) error {
		registers := registersFor(slots)
		for _, q := range append([]*tracee.Process{tg.proc}, tg.proc.Sharers()...) {
			if err := tracee.IgnoreLate(q.Watch(ctx, registers)); err != nil && !errors.Is(err, tracee.ErrGone) {
				return err
			}
		}
		return nil
	}
	err := tg.withStopped(ctx, func([]*tracee.Thread) error {
		err := set(next)
		if err != nil {
			return errors.Join(err, set(was))
		}
		for i, p := range next {
			if p != nil && p != was[i] {
				p.data.last, p.data.known = tg.readWatched(p.data)
			}
		}
		tg.registers.slots = next
		return nil
	})
	if err = tracee.IgnoreLate(err); err != nil {
		return err
	}
	for i, p := range next {
		if p != nil && p != was[i] {
			p.feed.setTactic(p, plan.DebugRegister)
		}
	}
	if none && len(tg.proc.AllLate()) == 0 {
		return tg.area.File.Set64(noted, 0)
	}
	return nil
}

// registersFor is what threads are to watch; nil is nothing.
func registersFor(slots [debugreg.MaxRegisters]*placed) *tracee.WatchSet {
	out := &tracee.WatchSet{}
	for i, p := range slots {
		if p != nil {
			out[i] = tracee.Watchpoint{Addr: p.data.at, Len: p.data.length, Reads: p.data.reads}
		}
	}
	if *out == (tracee.WatchSet{}) {
		return nil
	}
	return out
}

// readWatched reads what the memory holds.
func (tg *target) readWatched(w *watchpoint) (v uint64, ok bool) {
	var b [8]byte
	n, err := tg.proc.ReadMemory(b[:w.length], w.at)
	return binary.LittleEndian.Uint64(b[:]), err == nil && n == w.length
}
