package engine

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/debugreg"
	"kprobe/probe/feed"
	"kprobe/probe/insn"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Watched implements tracee.Watcher: a thread has accessed memory that is watched.
func (h Handler) Watched(t *tracee.Thread, hits uint8, sure bool) {
	s := h.engine
	tg := s.targetOf(t)
	if tg == nil || tg.Area == nil {
		return
	}
	// It may be told in the midst of another's hit, whose record is in the making.
	was, busy := s.hitState, s.busy.Load()
	s.rec, s.done = nil, nil
	defer func() {
		s.hitState = was
		s.busy.Store(busy)
	}()
	th := tg.thread(t)
	if s.fill(tg, th) != nil {
		return
	}
	own, ok := tg.programRegs(t)
	if !ok {
		return
	}
	if !sure {
		hits = tg.likeliest(hits)
	}
	for i, p := range tg.Registers.Slots {
		if p != nil && hits&(1<<i) != 0 {
			s.hitWatch(tg, p, own)
		}
	}
}

// trapFlag is TF of RFLAGS, in a program that steps itself.
const trapFlag = 1 << 8

// likeliest are those of the registers that can have seen the access which the
// processor told no number of: what the instruction accesses for sure, else what has
// changed, else all, if that is one. The session's context is filled.
func (tg *Target) likeliest(hits uint8) uint8 {
	var sure, changed uint8
	f := tg.instructions(symbols.Addr(tg.Engine.regs.IP))
	for i, p := range tg.Registers.Slots {
		if p == nil || hits&(1<<i) == 0 {
			continue
		}
		w := p.data
		if did := debugreg.Find(f, w.access(&tg.Engine.regs)); did.Sure && (w.reads || did.Writes) {
			sure |= 1 << i
		}
		if v, ok := tg.readWatched(w); ok && w.known && v != w.last {
			changed |= 1 << i
		}
	}
	switch {
	case sure != 0:
		return sure
	case changed != 0:
		return changed
	case hits&(hits-1) == 0 && tg.Engine.regs.Flags&trapFlag == 0: // else it is a step of the program's own
		return hits
	}
	return 0
}

// access is an access to what is watched.
func (w *watchpoint) access(regs *fetch.Regs) debugreg.Access {
	return debugreg.Access{Regs: regs, Lo: uint64(w.at), Hi: uint64(w.at) + uint64(w.length)}
}

// Unwatched implements tracee.Watcher.
func (h Handler) Unwatched(t *tracee.Thread, err error) {
	h.engine.Warnf("process %d: what thread %d accesses is not seen by watchpoints: %v", t.Process().PID(), t.TID(), err)
}

// programRegs makes the registers of the session's context those that the thread
// has in the program, where it stands in a copy or a detour. own is then the
// instruction that is the only one it can have executed, for a thread in front of
// what was displaced: what it did there was kprobe's. ok is false where it was.
func (tg *Target) programRegs(t *tracee.Thread) (own symbols.Addr, ok bool) {
	regs, err := t.Regs()
	if err != nil {
		return 0, false
	}
	pc := symbols.Addr(regs.Rip)
	if !tg.ownCode(pc) {
		return 0, true
	}
	var out *unix.PtraceRegs
	var first symbols.Addr
	if st := tg.Patches.StageAt(pc); st != nil {
		out, _, ok = st.InCopy(regs, tg.Proc)
		first = st.At
	} else if st := tg.siteOfCopy(pc); st != nil {
		out, ok = st.leave(regs, tg.Proc)
		first = st.Addr
	}
	if !ok {
		return 0, false
	}
	tracee.FetchRegs(out, &tg.Engine.regs)
	if symbols.Addr(out.Rip) == first {
		return first, true
	}
	return 0, true
}

// hitWatch records an access. The session's context is filled; own is as for
// programRegs.
func (s *Engine) hitWatch(tg *Target, p *Placed, own symbols.Addr) {
	w := p.data
	behind := symbols.Addr(s.regs.IP)
	f := tg.instructions(behind)
	did := debugreg.Find(f, w.access(&s.regs))
	if own != 0 && (!did.Known || did.At != own) {
		return // kprobe's own code did it
	}
	if !did.Known && !w.said {
		w.said = true
		s.Warnf("%s/%s: which instruction accessed %s is not known at %v: the one behind it is shown there", p.Ev.Group, p.Ev.Name, p.Where.Name, behind)
	}
	s.ctx.Watched.Addr = uint64(w.at)
	s.ctx.Watched.Old, s.ctx.Watched.HasOld = w.last, w.known
	s.ctx.Watched.Value, s.ctx.Watched.HasValue = tg.readWatched(w)
	w.last, w.known = s.ctx.Watched.Value, s.ctx.Watched.HasValue
	if w.only && did.Known && !did.Reads {
		if t := p.feed; !s.Stopping && !p.removed && t.enabled(p) && t.on() {
			t.producer.Count(s.ctx.CPU, p.Id, ring.CounterFiltered, 1)
		}
		return
	}
	s.accessed = feed.Access{Did: did.At, Behind: behind}
	s.regs.IP = uint64(did.At)
	s.record(p, nil, 0)
	s.regs.IP = uint64(behind)
}

// instructions are those of the function around an address, as its file has them;
// nil where none is known.
func (tg *Target) instructions(at symbols.Addr) *insn.Function {
	sites, err := tg.Space.Resolve(symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(at)})
	if err != nil || sites[0].Module == nil || sites[0].Module.File == nil || sites[0].Func.Size() == 0 {
		return nil
	}
	f, err := tg.funcs.Of(sites[0])
	if err != nil {
		return nil
	}
	return f.Sweep
}

// watchState is a watchpoint, and whether it was on when that was looked at.
type watchState struct {
	p   *Placed
	off bool
}

func (x watchState) switched() bool { return x.p.feed.disabled(x.p) != x.off }

// listWatched lists the watchpoints of all targets of which it is to be seen when they
// are switched on and off, after a change; nil: there is none.
func (s *Engine) listWatched(c *changeset) {
	var list []watchState
	note := func(p *Placed) {
		if p.data != nil && (c == nil || !c.drop[p]) {
			list = append(list, watchState{p, p.feed.disabled(p)})
		}
	}
	for _, q := range s.Targets {
		if !q.IsMain() || q.Area == nil {
			continue
		}
		for p := range q.Placed {
			note(p)
		}
	}
	if c != nil {
		for _, p := range c.fresh {
			note(p)
		}
	}
	s.watching.Store(&list)
}

// watchesDue reports whether a watchpoint was switched since that was looked at. Any
// goroutine may call it.
func (s *Engine) watchesDue() bool {
	list := s.watching.Load()
	return list != nil && slices.ContainsFunc(*list, watchState.switched)
}

// watchesAtTick gives registers to watchpoints that were switched on, and takes those
// of the ones that were switched off.
func (tg *Target) watchesAtTick(ctx context.Context) {
	if !tg.IsMain() || tg.Area == nil || !tg.Engine.watchesDue() {
		return
	}
	tg.syncWatches(ctx)
	tg.Engine.listWatched(nil)
}

// syncWatches gives registers to the watchpoints that are on, as far as there are.
func (tg *Target) syncWatches(ctx context.Context) {
	list := tg.watchers(nil, nil)
	next, err := assign(tg.Registers.Slots, list)
	if full := (*debugreg.FullError)(nil); errors.As(err, &full) {
		tg.Engine.Warnf("process %d: %s watches nothing: %v", tg.Proc.PID(), full.Wanted, full)
		if next, err = assign(tg.Registers.Slots, list[:debugreg.MaxRegisters]); err != nil {
			return
		}
	}
	if err := tg.setWatches(ctx, next); err != nil && !errors.Is(err, tracee.ErrGone) {
		tg.Engine.Warnf("watchpoints of process %d: %v", tg.Proc.PID(), err)
	}
}

// watchesGone marks the watchpoints gone whose library was unloaded.
func (tg *Target) watchesGone(gone map[*Placed]bool) {
	for p := range tg.Placed {
		if m := p.Where.Module; p.data != nil && m != nil && !slices.Contains(tg.Space.Modules(), m) {
			gone[p] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	var next [debugreg.MaxRegisters]*Placed
	for i, p := range tg.Registers.Slots {
		if !gone[p] {
			next[i] = p
		}
	}
	if err := tg.setWatches(context.WithoutCancel(tg.Engine.Run), next); err != nil && !errors.Is(err, tracee.ErrGone) {
		tg.Engine.Warnf("watchpoints of process %d: %v", tg.Proc.PID(), err)
	}
}
