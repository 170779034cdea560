package engine

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
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Watchpoints
//
// A watchpoint is a probe of memory: the processor's debug registers trap after an instruction
// that has read or written it. Nothing is written to the process. Every thread gets the
// registers in a stop (probe/tracee/debugregs.go). There are four, so a probe that is switched
// off gives up its register. The states:
//
//	noted    the memory file says that registers may be set. So the fallback handler continues a
//	         thread that traps when no tracer lives
//	watched  the threads have the registers
//	left     the registers were cleared in every thread, by the session or by recovery. Only then
//	         may the fallback handler be removed
//
// A thread that could not be stopped keeps its registers until it stops. While there is one, the
// fallback handler stays, with everything that it needs.

// watchpoint is the memory that a probe watches.
type watchpoint struct {
	at     symbols.Addr // symbols.NoData: none yet
	length int          // in bytes
	reads  bool         // the register traps reads and writes; false: only writes
	only   bool         // only reads are hits
	last   uint64       // the memory's contents at the last look, if known
	known  bool
	said   bool // the user was told that the instruction isn't always known
}

// registers are the debug registers of an address space.
type registers struct {
	Slots [debugreg.MaxRegisters]*Placed
}

// resolveWatch finds what a definition watches in the target.
func (tg *Target) resolveWatch(d *fetch.Def, ev *Event) ([]planner.Request, error) {
	if tg.Engine.Inject != nil {
		return nil, d.Error(fetch.BadProbeAddr, "memory makes no calls", nil)
	}
	m, prog, err := assess.Watch(tg.Space, d, tg.Proc, tg.Engine.Opts.MaxText)
	if err != nil {
		return nil, err
	}
	if err := tracee.CheckDebugRegisters(); err != nil {
		return nil, err
	}
	w := &watchpoint{at: m.Site.Addr, length: m.Length, reads: m.Reads, only: m.Only}
	p := newPlaced(tg, ev, d, planner.Probe{Program: prog, Where: &m.Site, Course: planner.Course{Tactic: plan.DebugRegister}})
	p.rarer().data = w
	return []planner.Request{{Place: &assess.Place{Site: m.Site}, P: &p.Probe, Kind: planner.Watch}}, nil
}

// watchers lists the watchpoints that need a debug register, in the order in which they were added.
func (tg *Target) watchers(fresh []*Placed, drop map[*Placed]bool) (list []*Placed) {
	for _, p := range slices.Concat(slices.Collect(maps.Keys(tg.apart)), fresh) {
		if p.data() != nil && !drop[p] && p.data().at != symbols.Addr(symbols.NoData) && !p.feed.disabled(p) && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *Placed) int { return cmp.Compare(a.seq, b.seq) })
	return list
}

// changeWatches assigns debug registers to the watchpoints that a change adds, and frees those of the ones
// that it removes. undo restores the registers.
func (tg *Target) changeWatches(ctx context.Context, c *changeset) (undo func(), err error) {
	was := tg.Registers.Slots
	next, err := assign(was, tg.watchers(c.fresh, c.drop))
	if err != nil {
		return nil, err
	}
	if err := tg.setWatches(ctx, next); err != nil {
		return nil, err
	}
	tg.Engine.listWatched(c)
	return func() {
		if err := tg.setWatches(ctx, was); err != nil {
			tg.Engine.Warnf("watchpoints of process %d: %v", tg.Proc.PID(), err)
		}
	}, nil
}

// assign assigns a debug register to each watchpoint in list; one that has a register keeps it. The error
// is a *assess.DefError around a *debugreg.FullError.
func assign(was [debugreg.MaxRegisters]*Placed, list []*Placed) (next [debugreg.MaxRegisters]*Placed, err error) {
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
			full := &debugreg.FullError{Wanted: p.Ev.Group + "/" + p.Ev.Name}
			for _, q := range next {
				full.Held = append(full.Held, q.Ev.Group+"/"+q.Ev.Name)
			}
			return was, &assess.DefError{Def: p.Def, Err: full}
		}
		next[i] = p
	}
	return next, nil
}

// setWatches sets the debug registers in every thread that runs in the target's memory, in one stop. On an
// error the threads have the old ones.
func (tg *Target) setWatches(ctx context.Context, next [debugreg.MaxRegisters]*Placed) error {
	tg = tg.main
	was := tg.Registers.Slots
	if next == was || tg.Area == nil {
		return nil
	}
	none := next == [debugreg.MaxRegisters]*Placed{}
	noted := tg.Area.File.Layout.Header.Off + memory.HeaderWatched
	if !none {
		if err := tg.takeTraps(ctx); err != nil {
			return err
		}
		if err := tg.Area.File.Set64(noted, 1); err != nil {
			return err
		}
	}
	set := func(slots [debugreg.MaxRegisters]*Placed) error {
		registers := registersFor(slots)
		for _, q := range append([]*tracee.Process{tg.Proc}, tg.Proc.Sharers()...) {
			if err := tracee.IgnoreLate(q.Watch(ctx, registers)); err != nil && !errors.Is(err, tracee.ErrGone) {
				return err
			}
		}
		return nil
	}
	err := tg.WithStopped(ctx, func([]*tracee.Thread) error {
		err := set(next)
		if err != nil {
			return errors.Join(err, set(was))
		}
		for i, p := range next {
			if p != nil && p != was[i] {
				p.data().last, p.data().known = tg.readWatched(p.data())
			}
		}
		tg.Registers.Slots = next
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
	if none && len(tg.Proc.AllLate()) == 0 {
		return tg.Area.File.Set64(noted, 0)
	}
	return nil
}

// registersFor converts the watchpoints to the tracer's form; nil if there are none.
func registersFor(slots [debugreg.MaxRegisters]*Placed) *tracee.WatchSet {
	out := &tracee.WatchSet{}
	for i, p := range slots {
		if p != nil {
			out[i] = tracee.Watchpoint{Addr: p.data().at, Len: p.data().length, Reads: p.data().reads}
		}
	}
	if *out == (tracee.WatchSet{}) {
		return nil
	}
	return out
}

// readWatched reads the watched memory.
func (tg *Target) readWatched(w *watchpoint) (v uint64, ok bool) {
	var b [8]byte
	n, err := tg.Proc.ReadMemory(b[:w.length], w.at)
	return binary.LittleEndian.Uint64(b[:]), err == nil && n == w.length
}
