package engine

import (
	"context"
	"encoding/binary"
	"errors"

	"kprobe/fetch"
	"kprobe/probe/area"
	"kprobe/probe/feed"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a return is seen by breakpoints
//
// This is for calls that return neither by return trampolines (returntrampoline.go) nor by
// exits that take jumps (returnexits.go).
//
// At the entry of a probed function the return address is at [sp]. kprobe remembers the call by
// the stack pointer with which it will return, and puts breakpoints on the function's returns
// (returnwatch.go). If the function has jumped to another one and returns by that one's
// returns, the breakpoint is on the instruction at the return address, the first that runs
// after the return. The program's stack is not written: exceptions, backtraces, longjmp and
// shadow stacks work as without kprobe, and nothing is left on a stack when kprobe is killed.
//
// If that instruction can't carry a breakpoint (code made at run time, the signal trampoline,
// an instruction that can't run out of line), the slot gets the address of a return trampoline
// instead, an int3 of the instance's own. This is the kernel's way.
//
// A call that never returns (longjmp, an exception, a thread's end) leaves an instance. It is
// freed when the same slot is entered again, when its thread ends or, if the pool is empty,
// when its slot was overwritten or its thread's stack has shrunk past it.

// enterCall makes an instance for each return probe of the site. The thread
// stands at the function's entry, the session's context is filled.
func (s *Engine) enterCall(ctx context.Context, tg *Target, th *thread, st *Site) {
	var word [8]byte
	slot := symbols.Addr(s.regs.GPR[fetch.SP])
	var ra symbols.Addr
	known, shared, plain := false, false, false
	for _, p := range st.returns {
		if s.Stopping {
			continue
		}
		if !p.feed.enabled(p) {
			s.enterUnseen(tg, p, slot)
			continue
		}
		if !known {
			if _, err := tg.Proc.ReadTouched(word[:], slot); err != nil {
				// A stack that can't be read holds no return address.
				s.miss(p)
				continue
			}
			raw := symbols.Addr(binary.LittleEndian.Uint64(word[:]))
			ra = tg.behind(raw)
			known, plain = true, ra == raw
			if in := tg.callAt(ra); in != nil {
				// Reached by a jump from a function whose return is
				// followed by a return trampoline: both return there.
				ra, shared, plain = in.Return, true, false
			}
		}
		if in := s.enterOne(ctx, tg, th, p, slot, ra, shared, plain); in != nil && in.Trampoline >= 0 {
			shared, plain = true, false
		}
	}
}

// enterUnseen forgets the call of a probe that is disabled whose place this one
// takes, that is entered now: it was left without a return, and would take this
// one's. Where a return trampoline was in its slot the program has written over it.
func (s *Engine) enterUnseen(tg *Target, p *Placed, slot symbols.Addr) {
	key, ok := p.callKey(tg, &s.regs, slot)
	if !ok {
		return
	}
	s.done = tg.calls.Take(key, func(in *Instance) bool { return in.Probe == p && in.Trampoline < 0 }, s.done)
	for _, in := range s.done {
		in.Pool.Put(in)
	}
	s.done = s.done[:0]
}

// enterOne makes an instance for one probe. shared says that the slot holds a
// return trampoline already, of another instance of the same call, plain that it holds
// ra itself. It is nil if the call is not followed.
func (s *Engine) enterOne(ctx context.Context, tg *Target, th *thread, p *Placed, slot, ra symbols.Addr, shared, plain bool) *Instance {
	in := p.pool.Get()
	if in == nil {
		tg.reclaim(th, p.pool)
		if in = p.pool.Get(); in == nil {
			s.miss(p)
			return nil
		}
	}
	in.Probe, in.Pop, in.TID, in.TGID = p, p.pop, th.t.TID(), tg.Proc.PID()
	in.Slot, in.Return, in.Time = slot, ra, s.now
	var ok bool
	if in.Key, ok = p.callKey(tg, &s.regs, slot); !ok {
		p.pool.Put(in)
		s.miss(p)
		return nil
	}
	if p.user.handles() && s.entryHandler(p, in) {
		p.pool.Put(in)
		return nil
	}
	if p.never {
		p.pool.Put(in)
		return nil // what comes back to its caller with this stack is another call
	}
	in.Inside = plain && !p.GoABI && tg.watches(ctx, p)
	if !p.GoABI && !in.Inside && !shared && !tg.catchReturn(ctx, in) {
		p.pool.Put(in)
		s.miss(p)
		return nil
	}
	// The time of the entry is that of going on: what was done here since the
	// stop is none of the call's time.
	s.ctx.Time = s.clock.Now()
	if p.timeSlots != nil {
		s.ctx.Time = s.counter.TSC()
	}
	in.Entry = p.Program.EvalEntry(&s.ctx, in.Entry[:0])
	tg.calls.Enter(in, func(old *Instance) bool {
		if old.Time == in.Time && old.TID == in.TID && old.Probe != in.Probe && old.Probe.Where.Addr == in.Probe.Where.Addr {
			return false // another probe of the function, and of this very call
		}
		// The same function entered again at the same depth: the old call
		// is over, unless functions jump to each other; then this is the
		// same call, and it is followed once.
		stale := old.Probe == in.Probe || old.Inside || !old.Probe.tails || old.Return != in.Return
		if stale && old.Trampoline >= 0 {
			tg.freeTrampoline(old)
		}
		return stale
	})
	return in
}

// catchReturn arranges that the thread stops when it has returned to in.ra.
func (tg *Target) catchReturn(ctx context.Context, in *Instance) bool {
	if tg.lands(ctx, in.Return) {
		return true
	}
	i, at, ok := tg.Area.Trampolines.Take(in.Slot, in.Return)
	if !ok {
		return false
	}
	tg.calls.Trap(in, i)
	if tg.Engine.recordsStacks() {
		first := tg.Area.Trampolines.First
		tg.Feed.Trampolines.Note(first, first+area.MostTrampolines*area.TrampolineSize, feed.Landed{Time: tg.Engine.now, At: at, Slot: in.Slot, Ret: in.Return})
	}
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], uint64(at))
	if err := tg.Proc.WriteMemory(word[:], in.Slot); err != nil {
		tg.freeTrampoline(in)
		return false
	}
	return true
}

// leaveCall finishes the instances that return to the site with this stack
// pointer. The context is filled.
func (s *Engine) leaveCall(tg *Target, st *Site) {
	key := callKey{PID: tg.Proc.PID(), SP: s.regs.GPR[fetch.SP]}
	pid := tg.Proc.PID()
	s.done = tg.calls.Take(key, func(in *Instance) bool {
		return in.Return == st.Addr && in.TGID == pid && in.Trampoline < 0 && !in.Inside
	}, s.done)
	if len(s.done) > 0 && !s.returned(tg, s.done[0]) {
		for _, in := range s.done {
			in.Pool.Put(in)
		}
		s.done = s.done[:0]
	}
	s.finish(tg)
}

// returned tells a return from a jump to where the call would have returned,
// with the same stack pointer, as it comes behind a handler that has caught
// what the function threw: only a return leaves the address below the stack
// pointer. Handlers of signals keep off that place (the red zone).
func (s *Engine) returned(tg *Target, in *Instance) bool {
	var word [8]byte
	_, err := tg.Proc.ReadTouched(word[:], in.Slot)
	return err != nil || symbols.Addr(binary.LittleEndian.Uint64(word[:])) == in.Return
}

// finish records the calls in s.done, the last entered first.
func (s *Engine) finish(tg *Target) {
	for _, in := range s.done {
		if in.Probe.user.handles() {
			s.returnHandler(in)
		} else {
			s.record(in.Probe, in.Entry, in.Return)
		}
		if in.Trampoline >= 0 {
			tg.freeTrampoline(in)
		}
		in.Pool.Put(in)
	}
	s.done = s.done[:0]
}

// leaveByTrampoline finishes the call whose return trampoline was hit, and returns where
// the thread must go on. Instances that were entered by jumps on the way
// return with it.
func (s *Engine) leaveByTrampoline(tg *Target, i int) symbols.Addr {
	in := tg.calls.ByTrampoline(i)
	if in == nil {
		// A return trampoline that was given up; its cell still tells where to.
		return tg.Area.Trampolines.Target(i)
	}
	ra := in.Return
	s.regs.IP = uint64(ra) // a return trampoline is not where the program is
	s.done = tg.calls.Take(in.Key, func(x *Instance) bool { return x.Return == ra && !x.Inside }, s.done)
	s.finish(tg)
	return ra
}

// leaveGo finishes the call of a Go function that is left at this site.
func (s *Engine) leaveGo(tg *Target, st *Site) {
	key, known := goKey(tg.Proc, &s.regs)
	var word [8]byte
	if _, err := tg.Proc.ReadTouched(word[:], symbols.Addr(s.regs.GPR[fetch.SP])); err != nil {
		return
	}
	ra := symbols.Addr(binary.LittleEndian.Uint64(word[:]))
	for _, p := range st.exits {
		if s.jumped {
			return
		}
		if p.alone {
			s.returnAlone(p, ra)
			continue
		}
		if !known {
			continue
		}
		s.done = tg.calls.Take(key, func(in *Instance) bool { return in.Probe == p }, s.done)
		for _, in := range s.done {
			in.Return = ra
		}
		// The hit has the registers of behind the return, as one of a jump has.
		at, sp := s.regs.IP, s.regs.GPR[fetch.SP]
		s.regs.IP, s.regs.GPR[fetch.SP] = uint64(ra), sp+8
		s.finish(tg)
		s.regs.IP, s.regs.GPR[fetch.SP] = at, sp
	}
}

// callKey is the key of the call of the probe's function that a thread is at the entry of.
func (p *Placed) callKey(tg *Target, regs *fetch.Regs, slot symbols.Addr) (k callKey, ok bool) {
	if p.GoABI {
		return goKey(tg.Proc, regs)
	}
	return callKey{PID: tg.Proc.PID(), SP: uint64(slot) + 8 + p.pop}, true
}

// goKey is the key of the call that a thread running Go code is in: its
// goroutine, which runtime·tlsg keeps at fs:-8, and the distance of the stack
// pointer from the upper end of the goroutine's stack, g.stack.hi, the second
// word of a g (runtime/runtime2.go). Stacks are copied when they grow: the
// distance stays.
func goKey(proc *tracee.Process, regs *fetch.Regs) (callKey, bool) {
	var b [16]byte
	if _, err := proc.ReadTouched(b[:8], symbols.Addr(regs.FSBase-8)); err != nil {
		return callKey{}, false
	}
	g := binary.LittleEndian.Uint64(b[:8])
	if _, err := proc.ReadTouched(b[:], symbols.Addr(g)); err != nil {
		return callKey{}, false
	}
	hi := binary.LittleEndian.Uint64(b[8:])
	return callKey{PID: proc.PID(), G: g, SP: hi - regs.GPR[fetch.SP]}, true
}

// reclaim gives instances back that can't return any more. It is called when
// a pool is empty.
func (tg *Target) reclaim(th *thread, p *pool) {
	var word [8]byte
	sp := uint64(0)
	if r, err := th.t.Regs(); err == nil {
		sp = r.Rsp
	}
	found := false
	for in := range p.Active() {
		if in.Probe.GoABI {
			continue
		}
		shrunk := in.TID == th.t.TID() && uint64(in.Slot) < sp && tg.sameStack(in.Slot, symbols.Addr(sp))
		if shrunk || tg.threadOf(in.TID) == nil {
			tg.abandon(in)
			found = true
		}
	}
	if !p.LookDue(found) {
		return
	}
	for in := range p.Active() {
		if in.Probe.GoABI {
			continue
		}
		_, err := tg.Proc.ReadMemory(word[:], in.Slot)
		if errors.Is(err, symbols.ErrLatePage) {
			continue
		}
		now := tg.behind(symbols.Addr(binary.LittleEndian.Uint64(word[:])))
		if by := tg.callAt(now); by != nil {
			now = by.Return
		}
		if err != nil || now != in.Return {
			tg.abandon(in)
			found = true
		}
	}
	p.Looked(found)
}

// abandon forgets a call that won't return.
func (tg *Target) abandon(in *Instance) {
	if in.Trampoline >= 0 {
		tg.freeTrampoline(in)
	}
	tg.calls.Drop(in)
}
