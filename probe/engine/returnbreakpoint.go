package engine

import (
	"context"
	"encoding/binary"
	"errors"

	"kprobe/fetch"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a return is seen by breakpoints
//
// Breakpoints are for calls that are seen neither by return trampolines with detours
// (returntrampoline.go) nor by jumps at exits (returnexits.go).
//
// At the entry of a probed function the return address is at [sp]: this word is the call's slot.
// kprobe notes the call by the stack pointer with which it will return, and writes breakpoints on
// the function's returns (returnwatch.go). If the function has jumped to another one, and so
// returns by a return of that one, the breakpoint is on the instruction at the return address: the
// first that runs after the return. Nothing is written to the program's stack. So exceptions,
// backtraces, longjmp and shadow stacks work as without kprobe, and nothing is left on a stack when
// kprobe is killed.
//
// If that instruction can't carry a breakpoint (code made at run time, the signal trampoline,
// an instruction that can't run out of line), the slot gets the address of a return trampoline
// instead: an int3 that belongs to the instance (returnslot.go). This is the kernel's way.
//
// A call that never returns (longjmp, an exception, a thread's end) keeps its instance. The
// instance is freed when a call with the same slot is entered, or when its thread ends. If the pool
// is empty, it is also freed when its slot was overwritten or its thread's stack has shrunk past
// the slot.

// enterCall makes an instance for each return probe of the site. The thread is at the function's
// entry, and the session's context is filled.
func (s *Engine) enterCall(ctx context.Context, tg *Target, th *thread, st *Site) {
	if s.Stopping {
		return
	}
	slot := symbols.Addr(s.regs.GPR[fetch.SP])
	c, err := tg.arrivingAt(slot)
	for _, p := range st.returns {
		if !p.followed() {
			continue
		}
		key, ok := callKey{}, false
		if err == nil {
			key, ok = p.callKey(tg, &s.regs, slot)
		}
		if ok {
			s.forgetOver(tg, p, key, c)
		}
		switch {
		case !p.feed.enabled(p):
		case !ok:
			s.miss(p) // a stack that can't be read holds no return address
		default:
			if in := s.enterOne(ctx, tg, th, p, key, c); in != nil && in.Trampoline >= 0 {
				c.by = in
			}
		}
	}
}

// followed reports whether breakpoints follow the calls of a return probe. A session that is to leave
// its probes alone records nothing by breakpoints (record), so only handlers need to see such returns.
// A breakpoint at a return address would be in the way of leaving, and a return trampoline in a slot
// would be left there.
func (p *Placed) followed() bool {
	return p.returns() && (!p.target.Engine.Opts.Detach || p.user().handles())
}

// enterOne makes an instance for one probe; nil if the call is not followed.
func (s *Engine) enterOne(ctx context.Context, tg *Target, th *thread, p *Placed, key callKey, c arriving) *Instance {
	in := s.instance(tg, th, p, key, c)
	if in == nil {
		return nil
	}
	if p.user().handles() && s.entryHandler(p, in) {
		in.Pool.Put(in)
		return nil
	}
	if p.never {
		in.Pool.Put(in)
		return nil // the function never returns: a return with this stack pointer is another call's
	}
	in.Inside = !p.GoABI && tg.watches(ctx, p)
	if !p.GoABI && !in.Inside && c.by == nil && !tg.catchReturn(ctx, in) {
		in.Pool.Put(in)
		s.miss(p)
		return nil
	}
	// The entry's time is taken here, not at the stop, so that the tracer's work doesn't count as
	// time of the call.
	s.ctx.Time = s.clock.Now()
	if p.timeSlots() != nil {
		s.ctx.Time = s.counter.TSC()
	}
	in.Entry = p.Program.EvalEntry(&s.ctx, in.Entry[:0])
	tg.calls.Add(in)
	return in
}

// leaveCall finishes the calls that return to the site with the thread's stack pointer. The
// session's context is filled.
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

// returned reports whether the thread has arrived at the return address by a return. It may also
// have come by a jump with the same stack pointer, for example from a handler that has caught the
// function's exception. Only a return leaves its address in the word below the stack pointer.
// Signal handlers don't overwrite that word: it is in the red zone.
func (s *Engine) returned(tg *Target, in *Instance) bool {
	var word [8]byte
	_, err := tg.Proc.ReadTouched(word[:], in.Slot)
	return err != nil || symbols.Addr(binary.LittleEndian.Uint64(word[:])) == in.Return
}

// finish records the returns of the calls in s.done, the last entered first, and frees their
// instances.
func (s *Engine) finish(tg *Target) {
	for _, in := range s.done {
		if in.Probe.user().handles() {
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

// leaveByTrampoline finishes the call that returned by return trampoline i, and the calls that were
// entered by jumps from it. It returns the address where the thread must continue.
func (s *Engine) leaveByTrampoline(tg *Target, i int) symbols.Addr {
	in := tg.calls.ByTrampoline(i)
	if in == nil {
		// The call was forgotten, but the trampoline's cell still holds the return address.
		return tg.Area.Trampolines.Target(i)
	}
	ra := in.Return
	s.regs.IP = uint64(ra) // the program's address, not the trampoline's
	s.done = tg.calls.Take(in.Key, func(x *Instance) bool { return x.Return == ra && !x.Inside }, s.done)
	s.finish(tg)
	return ra
}

// leaveGo finishes the calls of Go functions that are left at this site.
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
		// The hit shows the registers after the return, as a jump's hit does.
		at, sp := s.regs.IP, s.regs.GPR[fetch.SP]
		s.regs.IP, s.regs.GPR[fetch.SP] = uint64(ra), sp+8
		s.finish(tg)
		s.regs.IP, s.regs.GPR[fetch.SP] = at, sp
	}
}

// callKey is the key of a call of the probe's function. The thread is at the function's entry.
func (p *Placed) callKey(tg *Target, regs *fetch.Regs, slot symbols.Addr) (k callKey, ok bool) {
	if p.GoABI {
		return goKey(tg.Proc, regs)
	}
	return callKey{PID: tg.Proc.PID(), SP: uint64(slot) + 8 + p.pop()}, true
}

// goKey is the key of the current call of a thread that runs Go code. It consists of the goroutine,
// which is at fs:-8 (runtime·tlsg), and of the distance of the stack pointer from the upper end of
// the goroutine's stack. That end is g.stack.hi, the second word of a g (runtime/runtime2.go). A
// stack is copied when it grows, and the distance stays the same.
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

// reclaim frees the instances of calls that can't return any more. It is called when a pool is
// empty.
func (tg *Target) reclaim(th *thread, p *pool) {
	var word [8]byte
	sp := uint64(0)
	if r, err := th.t.Regs(); err == nil {
		sp = r.Rsp
	}
	found := false
	tid, over := -1, false // the last instance's thread, and whether it has ended
	for in := range p.Active() {
		if in.Probe.GoABI {
			continue
		}
		if in.TID != tid {
			tid, over = in.TID, tg.threadOf(in.TID) == nil
		}
		if over || in.TID == th.t.TID() && uint64(in.Slot) < sp && tg.sameStack(in.Slot, symbols.Addr(sp)) {
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
		now, _ := tg.trapped(tg.behind(symbols.Addr(binary.LittleEndian.Uint64(word[:]))))
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
