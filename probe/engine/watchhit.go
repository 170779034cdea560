package engine

import (
	"context"
	"errors"
	"slices"

	"kprobe/fetch"
	"kprobe/probe/debugreg"
	"kprobe/probe/feed"
	"kprobe/probe/insn"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Watched implements tracee.Watcher: a thread has accessed watched memory.
func (h Handler) Watched(t *tracee.Thread, hits uint8, sure bool) {
	s := h.engine
	tg := s.targetOf(t)
	if tg == nil || tg.Area == nil {
		return
	}
	// This may interrupt the taking of another hit, whose state must be kept.
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

// trapFlag is TF of RFLAGS. A program sets it to step itself.
const trapFlag = 1 << 8

// likeliest selects from hits the debug registers that have probably seen an access, if the processor
// doesn't say which. These are the registers whose memory the instruction surely accesses; if there
// are none, those whose memory has changed; if there are none, the only register, if hits is one. The
// session's context is filled.
func (tg *Target) likeliest(hits uint8) uint8 {
	var sure, changed uint8
	f := tg.instructions(symbols.Addr(tg.Engine.regs.IP))
	for i, p := range tg.Registers.Slots {
		if p == nil || hits&(1<<i) == 0 {
			continue
		}
		w := p.data()
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
	case hits&(hits-1) == 0 && tg.Engine.regs.Flags&trapFlag == 0: // with TF it is a step of the program's own
		return hits
	}
	return 0
}

// access describes an access to the watched memory, for debugreg.
func (w *watchpoint) access(regs *fetch.Regs) debugreg.Access {
	return debugreg.Access{Regs: regs, Lo: uint64(w.at), Hi: uint64(w.at) + uint64(w.length)}
}

// Unwatched implements tracee.Watcher.
func (h Handler) Unwatched(t *tracee.Thread, err error) {
	h.engine.Warnf("process %d: what thread %d accesses is not seen by watchpoints: %v", t.Process().PID(), t.TID(), err)
}

// programRegs replaces the registers in the session's context by the program's, if the thread is in a
// copy or a detour. If the thread stands before the first displaced instruction, own is that
// instruction's address: only an access by that instruction is the program's. Otherwise own is 0. ok
// is false if kprobe's own code made the access.
func (tg *Target) programRegs(t *tracee.Thread) (own symbols.Addr, ok bool) {
	regs, err := t.Regs()
	if err != nil {
		return 0, false
	}
	pc := symbols.Addr(regs.Rip)
	if !tg.ownCode(pc) {
		return 0, true
	}
	var first symbols.Addr
	out, ok := tg.Patches.behindCopies(regs) // an access is reported behind the instruction
	if st := tg.Patches.StageAt(pc); !ok && !st.None() {
		out, _, ok = st.InCopy(regs, tg.Proc)
		first = st.At
	} else if st := tg.siteOfCopy(pc); !ok && st != nil {
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

// hitWatch takes a hit of a watchpoint. The session's context is filled; own is as for programRegs.
func (s *Engine) hitWatch(tg *Target, p *Placed, own symbols.Addr) {
	w := p.data()
	behind := symbols.Addr(s.regs.IP)
	f := tg.instructions(behind)
	did := debugreg.Find(f, w.access(&s.regs))
	if own != 0 && (!did.Known || did.At != own) {
		return // kprobe's own code did it
	}
	if !did.Known && !w.said {
		w.said = true
		s.Warnf("%s/%s: which instruction accessed %s is not known at %v: the one behind it is shown there", p.Ev.Group, p.Ev.Name, p.Where.Name(), behind)
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

// instructions are the instructions of the function around an address, from its file; nil if no function
// is known there.
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

// watchState is a watchpoint, and whether it was off at the last listWatched.
type watchState struct {
	p   *Placed
	off bool
}

func (x watchState) switched() bool { return x.p.feed.disabled(x.p) != x.off }

// listWatched publishes the watchpoints of all targets for watchesDue, as they will be after a change; nil:
// none is being made.
func (s *Engine) listWatched(c *changeset) {
	var list []watchState
	note := func(p *Placed) {
		if p.data() != nil && (c == nil || !c.drop[p]) {
			list = append(list, watchState{p, p.feed.disabled(p)})
		}
	}
	for _, q := range s.Targets {
		if !q.IsMain() || q.Area == nil {
			continue
		}
		for p := range q.apart {
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

// watchesDue reports whether a watchpoint was switched on or off since the last listWatched. Any goroutine
// may call it.
func (s *Engine) watchesDue() bool {
	list := s.watching.Load()
	return list != nil && slices.ContainsFunc(*list, watchState.switched)
}

// watchesAtTick assigns debug registers to watchpoints that were switched on, and frees those of
// watchpoints that were switched off.
func (tg *Target) watchesAtTick(ctx context.Context) {
	if !tg.IsMain() || tg.Area == nil || !tg.Engine.watchesDue() {
		return
	}
	tg.syncWatches(ctx)
	tg.Engine.listWatched(nil)
}

// syncWatches assigns debug registers to the watchpoints that are on. If there are too few, it warns and
// the last watchpoints get none.
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

// watchesGone adds the watchpoints whose library was unloaded to gone, and frees their debug registers.
func (tg *Target) watchesGone(gone map[*Placed]bool) {
	for p := range tg.apart {
		if m := p.Where.Module; p.data() != nil && m != nil && !slices.Contains(tg.Space.Modules(), m) {
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
