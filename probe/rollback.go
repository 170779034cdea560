package probe

import (
	"errors"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Faults of detours
//
// A detour reads, writes and executes what the program's instruction did not: it
// pushes registers, reads the time and the thread's control block, and writes to
// the rings. What of that the program has made impossible faults. The tracer sees
// the thread in its stop before any signal is delivered:
//
//	a load of a fetch  goes on where the value is a fault (detour.Fault)
//	an Ask             is given the answer, and goes on behind it
//	anything else      is rolled back: the thread gets the registers that it had at
//	                   the site, its hits are taken as a breakpoint's, and it goes
//	                   on at the displaced instructions, whose faults are its own
//
// So a program whose stack has no room for a detour's frame is shown its overflow at
// its own instruction, if that one overflows.

// Codes of SIGBUS and SIGSYS (asm-generic/siginfo.h).
const (
	busAdrAln  = 1
	sysSeccomp = 1
)

// caused reports whether the thread's own instruction raised the signal, or its own
// system call, which a filter traps.
func caused(si *tracee.Siginfo) bool {
	return si.Synchronous() && si.Signal() != unix.SIGTRAP || si.Signal() == unix.SIGSYS && si.Code() == sysSeccomp
}

// misaligned reports a fault of an access that is right but for its alignment, which
// the program has checked (EFLAGS.AC).
func misaligned(si *tracee.Siginfo) bool {
	return si.Signal() == unix.SIGBUS && si.Code() == busAdrAln
}

// answered gives a thread what its detour asks for; done is false for one that
// doesn't ask.
func (tg *target) answered(t *tracee.Thread, si *tracee.Siginfo, regs *unix.PtraceRegs) (v tracee.Verdict, done bool) {
	ask, ok := tg.patches.asks[symbols.Addr(regs.Rip)]
	if !ok || misaligned(si) || ask.What == detour.AskHit {
		return tracee.Deliver, false
	}
	switch ask.What {
	case detour.AskTime:
		now := tg.s.counter.TSC()
		regs.Rax, regs.Rdx = now&0xffff_ffff, now>>32
	case detour.AskThread:
		regs.Rax = uint64(tg.feed.numbers.Inside(t.TID()))
	}
	regs.Rip = ask.Back
	tg.faulted(t, si)
	return tg.resumed(t, regs), true
}

// rolledBack takes a thread out of a detour whose instruction faults; done is false
// for one that is in none, or in displaced instructions.
func (tg *target) rolledBack(t *tracee.Thread, si *tracee.Siginfo, regs *unix.PtraceRegs) (v tracee.Verdict, done bool) {
	st, in := tg.stageOf(regs)
	if st == nil || st.detour == nil {
		return tracee.Deliver, false
	}
	if _, _, ok := st.inCopy(in, tg.proc); ok {
		return tracee.Deliver, false
	}
	at := faulting{t: t, si: si, regs: regs, st: st, in: in}
	if st.way != nil {
		return st.way.rollBack(tg, at)
	}
	return tg.detourRolledBack(at)
}

// faulting is a thread whose instruction faults in a detour.
type faulting struct {
	t    *tracee.Thread
	si   *tracee.Siginfo
	regs *unix.PtraceRegs // the thread's
	st   *stage           // that it is in, or that has called the shared code it is in
	in   *unix.PtraceRegs // in the stage
}

// detourRolledBack is rolledBack for the code of probes that follow no calls, or follow
// them by exits.
func (tg *target) detourRolledBack(at faulting) (v tracee.Verdict, done bool) {
	t, st, in := at.t, at.st, at.in
	var r fetch.Regs
	tracee.FetchRegs(in, &r)
	taken, ok, err := st.detour.Undo(&r, tg.proc)
	if !ok || err != nil {
		return tracee.Deliver, false
	}
	if tg.dropRecord(st, taken, symbols.Addr(in.Rcx)) {
		taken--
	}
	tg.faulted(t, at.si)
	out := *at.regs
	fromFetch(&r, &out)
	out.Rip = uint64(st.at)
	if err := errors.Join(t.EndSequence(tg.inStage), t.SetRegs(&out)); err != nil {
		return tracee.Resume, true // gone
	}
	tg.rollbacks++
	if s, th := tg.s, tg.thread(t); s.fill(tg, th) == nil {
		if st.leaves && st.exits().calls.Common && !st.wants[0].alone {
			s.commonInstead(tg, th, st, taken)
			return sendTo(tg, t, &out, st.copyAt), true
		}
		for _, w := range st.wants[min(taken, len(st.wants)):] {
			s.takeInstead(tg, th, st, w)
		}
	}
	return sendTo(tg, t, &out, st.copyAt), true
}

// inStage reports whether an address is in a detour, or in code that detours share.
func (tg *target) inStage(a symbols.Addr) bool { return tg.patches.stageAt(a) != nil || tg.inShared(a) }

// dropRecord makes free room of the record that a detour was writing when it had
// taken so many hits, if it is the one at an address: then the hit is still to be
// taken.
func (tg *target) dropRecord(st *stage, taken int, at symbols.Addr) bool {
	if taken == 0 || taken > len(st.wants) || st.wants[taken-1].kind == requestReturn {
		return false
	}
	m := tg.area.File
	off := int64(at - m.Base)
	if at < m.Base || off&(ring.Unit-1) != 0 || off+ring.HeaderSize > int64(len(m.Mem)) {
		return false
	}
	id, units, committed := ring.SplitState(m.Load32(off + ring.StateOff))
	if committed || units == 0 || id != st.wants[taken-1].p.id {
		return false
	}
	m.Store32(off+ring.StateOff, ring.SkipWord(units)) // in one piece: the reader looks
	return true
}

// takeInstead takes the hit of a probe whose detour can't. The session's context is
// that of the site.
func (s *engine) takeInstead(tg *target, th *thread, st *stage, w patchRequest) {
	switch w.kind {
	case requestExit:
		if ra, err := tg.word(symbols.Addr(s.regs.GPR[fetch.SP])); err == nil {
			s.returnAlone(w.p, symbols.Addr(ra))
		}
	case requestReturn:
		// A call without an instance.
		if !s.stopping && w.p.feed.enabled(w.p) {
			s.miss(w.p)
		}
		if st.exits() != nil && st.exits().calls.Common && !w.joins {
			s.passInstead(tg, th, st, w, detour.Arrives)
		}
	case wantExit:
		if w.alone {
			if ra, err := tg.word(symbols.Addr(s.regs.GPR[fetch.SP])); err == nil {
				s.returnAlone(w.p, symbols.Addr(ra))
			}
			return
		}
		if w.passing != detour.NotPassing {
			s.passInstead(tg, th, st, w, w.passing)
			return
		}
		if mem := tg.callsOf(st.exits().calls, s.regs.GPR[fetch.SP]); mem != nil {
			s.exitInstead(tg, st, w, mem, true)
		}
	default:
		s.regs.IP = uint64(w.p.where.Addr)
		if s.inject != nil { // the call is left as it is
			if !s.stopping && w.p.feed.enabled(w.p) {
				w.p.feed.producer.Count(s.ctx.CPU, w.p.id, ring.CounterFiltered, 1)
			}
			return
		}
		s.record(w.p, nil, 0)
	}
}

// callsOf reads a table of calls, or what of it may have calls with that slot; nil: it
// can't be read.
func (tg *target) callsOf(k detour.Calls, slot uint64) []byte {
	mem := make([]byte, k.Size())
	for from, end := range k.Near(slot) {
		if _, err := tg.proc.ReadMemory(mem[from:end], symbols.Addr(k.Addr+uint64(from))); err != nil {
			return nil
		}
	}
	return mem
}

// passInstead notes that a call passes, or forgets one that was left.
func (s *engine) passInstead(tg *target, th *thread, st *stage, w patchRequest, way detour.Passing) {
	if w.conditional && !jccTaken(w.Inst.Opcode, s.regs.Flags) {
		return
	}
	k, sp := st.exits().calls, s.regs.GPR[fetch.SP]
	if w.open != nil {
		to, ok := fetch.ValueOf(w.open, &s.regs, tg.proc)
		if ok && !st.exits().noting.Has(to) {
			s.followOnward(tg, th, st)
			return
		}
	}
	mem := tg.callsOf(k, sp)
	ra, err := tg.word(symbols.Addr(sp))
	if mem == nil || err != nil {
		return
	}
	for _, row := range k.Pass(mem, sp, ra, way) {
		b, at := k.Row(mem, row)
		_ = tg.proc.WriteMemory(b, symbols.Addr(at)) // fails only if the process is gone
	}
}

// commonInstead does what a stage of a table in common has not done yet: the table
// tells which calls are left. The hit of the taken-th was taken, and its row not yet
// freed.
func (s *engine) commonInstead(tg *target, th *thread, st *stage, taken int) {
	if w := st.wants[0]; w.passing != detour.NotPassing {
		if s.passInstead(tg, th, st, w, w.passing); w.notes { // for all of them
			s.missedJump(st, taken)
		}
		return
	}
	k, sp := st.exits().calls, s.regs.GPR[fetch.SP]
	mem := tg.callsOf(k, sp)
	if mem == nil {
		return
	}
	if ra, err := tg.word(symbols.Addr(sp)); err == nil && taken > len(st.wants) {
		if in, ok := k.First(mem, sp, ra); ok { // it was counted
			k.Free(mem, in.Number)
			tg.freeCall(k, in.Number)
		}
	}
	done := map[uint32]bool{}
	for i, w := range st.wants {
		done[w.p.id] = true
		s.exitInstead(tg, st, w, mem, i != taken-1)
	}
	if !k.Anywhere {
		return
	}
	for _, in := range k.Used(mem) {
		id := k.OwnerOf(mem, in.Number)
		if in.Slot != sp || done[id] {
			continue
		}
		if p := tg.probeOf(id); p != nil && p.byExits != nil && p.byExits.anywhere {
			w := st.wants[0]
			w.p = p
			s.exitInstead(tg, st, w, mem, true)
		}
	}
}

// missedJump has the calls missed that a jump has not noted, behind the first of them.
func (s *engine) missedJump(st *stage, noted int) {
	for _, w := range st.wants {
		if !w.notes || w.conditional && !jccTaken(w.Inst.Opcode, s.regs.Flags) {
			continue
		}
		if noted--; noted < 0 && !s.stopping && w.p.feed.enabled(w.p) {
			s.miss(w.p)
		}
	}
}

// freeCall frees a row in the target.
func (tg *target) freeCall(k detour.Calls, row int) {
	tid, slot := k.Marks(row)
	_ = tg.proc.WriteMemory(make([]byte, 4), symbols.Addr(tid)) // fails only if the process is gone
	_ = tg.proc.WriteMemory(make([]byte, 8), symbols.Addr(slot))
}

// exitInstead records the return of a call that is noted in mem, the table of the
// stage's exits, if it is, unless record is false, and frees its row.
func (s *engine) exitInstead(tg *target, st *stage, w patchRequest, mem []byte, record bool) {
	k := st.exits().calls
	sp := s.regs.GPR[fetch.SP]
	key := sp
	if k.Go {
		call, ok := goKey(tg.proc, &s.regs)
		if !ok {
			return
		}
		if key, ok = detour.GoKey(call.G, call.SP); !ok {
			return
		}
	}
	in, ok := k.Find(mem, w.p.id, key)
	ra, err := tg.word(symbols.Addr(sp))
	if !ok || err != nil || ra != in.Return && !k.Go {
		return
	}
	if was := s.regs; record {
		s.regs.IP = in.Real
		s.regs.GPR[fetch.SP] += 8 + uint64(w.pop)
		s.record(w.p, k.Entry(mem, in.Number)[:w.p.prog.EntrySize()], symbols.Addr(in.Real))
		s.regs = was
	}
	tg.freeCall(k, in.Number)
}

// faulted repairs what the kernel does to a program's action for a fault that
// its thread blocks, or the program ignores (tracee.RepairForced): the action is as
// it was when kprobe came, or the program's own doing since.
func (tg *target) faulted(t *tracee.Thread, si *tracee.Siginfo) {
	sig := si.Signal()
	bit := uint64(1) << (sig - 1)
	was, known := tg.actions[sig]
	ignored := !known && tg.ignored&bit != 0
	if ignored {
		was.Handler = 1
	}
	if !ignored && (!known || was.Handler == 0) {
		return
	}
	th, laid := tg.thread(t), tg.fallbackWatch.laid[sig]
	status := caughtSignals(tg.proc.PID())
	switch {
	case !ignored && signalSet(status, "SigCgt:")&bit != 0:
		if th.forced&bit == 0 || th.laid == laid {
			return
		}
		// The fallback handler was laid again between the fault and this stop.
		if err := t.BlockSignal(sig); err != nil {
			tg.s.logf("the mask of thread %d could not be put back: %v", t.TID(), err)
		}
	case ignored && signalSet(status, "SigIgn:")&bit != 0:
	default:
		now, err := tg.proc.Sigaction(tg.s.run, t, sig)
		if err != nil || now.Handler != 0 {
			return
		}
		if err := t.RepairForced(sig, was, !ignored); err != nil {
			tg.s.logf("the action of signal %d could not be put back: %v", sig, err)
		}
		if !ignored {
			th.forced |= bit
		}
	}
	th.laid = laid
}
