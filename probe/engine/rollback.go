package engine

import (
	"errors"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Faults of detours
//
// A detour reads, writes and executes what the program's instruction did not: it pushes
// registers, reads the time and the thread's control block, and writes to the rings. If the
// program has made something of that impossible, it faults. The tracer sees the thread's stop
// before any signal is delivered:
//
//	a load of a fetch  continues where the value is a fault (detour.Fault)
//	an Ask             gets the answer, and continues after it
//	anything else      is rolled back: the thread gets the registers that it had at the site, its
//	                   hits are taken as a breakpoint's, and it continues at the displaced
//	                   instructions, whose faults are its own
//
// So a program whose stack has no room for a detour's frame sees its overflow at its own
// instruction, if that one overflows.

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
func (tg *Target) answered(t *tracee.Thread, si *tracee.Siginfo, regs *unix.PtraceRegs) (v tracee.Verdict, done bool) {
	ask, ok := tg.Patches.asks[symbols.Addr(regs.Rip)]
	if !ok || misaligned(si) || ask.What == detour.AskHit {
		return tracee.Deliver, false
	}
	switch ask.What {
	case detour.AskTime:
		now := tg.Engine.counter.TSC()
		regs.Rax, regs.Rdx = now&0xffff_ffff, now>>32
	case detour.AskThread:
		regs.Rax = uint64(tg.Feed.Numbers.Inside(t.TID()))
	}
	regs.Rip = ask.Back
	tg.faulted(t, si)
	return tg.resumed(t, regs), true
}

// rolledBack takes a thread out of a detour whose instruction faults; done is false
// for one that is in none, or in displaced instructions.
func (tg *Target) rolledBack(t *tracee.Thread, si *tracee.Siginfo, regs *unix.PtraceRegs) (v tracee.Verdict, done bool) {
	st, in := tg.StageOf(regs)
	if st == nil || st.Detour == nil {
		return tracee.Deliver, false
	}
	if _, _, ok := st.InCopy(in, tg.Proc); ok {
		return tracee.Deliver, false
	}
	at := faulting{t: t, si: si, regs: regs, st: st, in: in}
	if st.Way != nil {
		return runningWay(st.Way).rollBack(tg, at)
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
func (tg *Target) detourRolledBack(at faulting) (v tracee.Verdict, done bool) {
	t, st, in := at.t, at.st, at.in
	var r fetch.Regs
	tracee.FetchRegs(in, &r)
	taken, ok, err := st.Detour.Undo(&r, tg.Proc)
	if !ok || err != nil {
		return tracee.Deliver, false
	}
	if tg.dropRecord(st, taken, symbols.Addr(in.Rcx)) {
		taken--
	}
	tg.faulted(t, at.si)
	out := *at.regs
	fromFetch(&r, &out)
	out.Rip = uint64(st.At)
	if err := errors.Join(t.EndSequence(tg.inStage), t.SetRegs(&out)); err != nil {
		return tracee.Resume, true // gone
	}
	tg.rollbacks++
	if s, th := tg.Engine, tg.thread(t); s.fill(tg, th) == nil {
		if st.Leaves && st.Exits().Calls.Common && !st.Wants[0].Alone {
			s.commonInstead(tg, th, st, taken)
			return sendTo(tg, t, &out, st.CopyAt), true
		}
		for _, w := range st.Wants[min(taken, len(st.Wants)):] {
			s.takeInstead(tg, th, st, w)
		}
	}
	return sendTo(tg, t, &out, st.CopyAt), true
}

// inStage reports whether an address is in a detour, or in code that detours share.
func (tg *Target) inStage(a symbols.Addr) bool { return tg.Patches.StageAt(a) != nil || tg.InShared(a) }

// dropRecord makes free room of the record that a detour was writing when it had
// taken so many hits, if it is the one at an address: then the hit is still to be
// taken.
func (tg *Target) dropRecord(st *stage, taken int, at symbols.Addr) bool {
	if taken == 0 || taken > len(st.Wants) || st.Wants[taken-1].Kind == planner.Return {
		return false
	}
	m := tg.Area.File
	off := int64(at - m.Base)
	if at < m.Base || off&(ring.Unit-1) != 0 || off+ring.HeaderSize > int64(len(m.Mem)) {
		return false
	}
	id, units, committed := ring.SplitState(m.Load32(off + ring.StateOff))
	if committed || units == 0 || id != st.Wants[taken-1].P.Id {
		return false
	}
	m.Store32(off+ring.StateOff, ring.SkipWord(units)) // in one piece: the reader looks
	return true
}

// takeInstead takes the hit of a probe whose detour can't. The session's context is
// that of the site.
func (s *Engine) takeInstead(tg *Target, th *thread, st *stage, w planner.Request) {
	switch w.Kind {
	case planner.LoneExit:
		if ra, err := tg.word(symbols.Addr(s.regs.GPR[fetch.SP])); err == nil {
			s.returnAlone(PlacedOf(w), symbols.Addr(ra))
		}
	case planner.Return:
		// A call without an instance.
		if !s.Stopping && PlacedOf(w).feed.enabled(PlacedOf(w)) {
			s.miss(PlacedOf(w))
		}
		if st.Exits() != nil && st.Exits().Calls.Common && !w.Joins {
			s.passInstead(tg, th, st, w, detour.Arrives)
		}
	case planner.Exit:
		if w.Alone {
			if ra, err := tg.word(symbols.Addr(s.regs.GPR[fetch.SP])); err == nil {
				s.returnAlone(PlacedOf(w), symbols.Addr(ra))
			}
			return
		}
		if w.Passing != detour.NotPassing {
			s.passInstead(tg, th, st, w, w.Passing)
			return
		}
		if mem := tg.callsOf(st.Exits().Calls, s.regs.GPR[fetch.SP]); mem != nil {
			s.exitInstead(tg, st, w, mem, true)
		}
	default:
		s.regs.IP = uint64(w.P.Where.Addr)
		if s.Inject != nil { // the call is left as it is
			if !s.Stopping && PlacedOf(w).feed.enabled(PlacedOf(w)) {
				PlacedOf(w).feed.producer.Count(s.ctx.CPU, w.P.Id, ring.CounterFiltered, 1)
			}
			return
		}
		s.record(PlacedOf(w), nil, 0)
	}
}

// callsOf reads the part of a table that may have calls with a slot, for Calls.With: it is
// at its place in what is given, and around it lies anything. It holds until callsOf is
// called again. nil: it can't be read.
func (tg *Target) callsOf(k detour.Calls, slot uint64) []byte {
	if len(tg.calledAt) < k.Size() {
		tg.calledAt = make([]byte, k.Size())
	}
	mem := tg.calledAt[:k.Size()]
	for from, end := range k.Near(slot) {
		if _, err := tg.Proc.ReadMemory(mem[from:end], symbols.Addr(k.Addr+uint64(from))); err != nil {
			return nil
		}
	}
	return mem
}

// passInstead notes that a call passes, or forgets one that was left.
func (s *Engine) passInstead(tg *Target, th *thread, st *stage, w planner.Request, way detour.Passing) {
	if w.Conditional && !jccTaken(w.Inst.Opcode, s.regs.Flags) {
		return
	}
	k, sp := st.Exits().Calls, s.regs.GPR[fetch.SP]
	if w.Open != nil {
		to, ok := fetch.ValueOf(w.Open, &s.regs, tg.Proc)
		if set := st.Exits().PassesTo(st.Wants); set == nil || ok && !set.Has(to) {
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
		_ = tg.Proc.WriteMemory(b, symbols.Addr(at)) // fails only if the process is gone
	}
}

// commonInstead does what a stage of a table in common has not done yet: the table
// tells which calls are left. The hit of the taken-th was taken, and its row not yet
// freed.
func (s *Engine) commonInstead(tg *Target, th *thread, st *stage, taken int) {
	if w := st.Wants[0]; w.Passing != detour.NotPassing {
		if s.passInstead(tg, th, st, w, w.Passing); w.Notes { // for all of them
			s.missedJump(st, taken)
		}
		return
	}
	k, sp := st.Exits().Calls, s.regs.GPR[fetch.SP]
	mem := tg.callsOf(k, sp)
	if mem == nil {
		return
	}
	if ra, err := tg.word(symbols.Addr(sp)); err == nil && taken > len(st.Wants) {
		if in, ok := k.First(mem, sp, ra); ok { // it was counted
			k.Free(mem, in.Number)
			tg.freeCall(k, in.Number)
		}
	}
	done := map[uint32]bool{}
	for i, w := range st.Wants {
		done[w.P.Id] = true
		s.exitInstead(tg, st, w, mem, i != taken-1)
	}
	if !k.Anywhere {
		return
	}
	for _, in := range k.With(mem, sp) {
		id := k.OwnerOf(mem, in.Number)
		if done[id] {
			continue
		}
		if p := tg.probeOf(id); p != nil && p.ByExits != nil && p.ByExits.Anywhere {
			w := st.Wants[0]
			w.P = &p.Probe
			s.exitInstead(tg, st, w, mem, true)
		}
	}
}

// missedJump has the calls missed that a jump has not noted, behind the first of them.
func (s *Engine) missedJump(st *stage, noted int) {
	for _, w := range st.Wants {
		if !w.Notes || w.Conditional && !jccTaken(w.Inst.Opcode, s.regs.Flags) {
			continue
		}
		if noted--; noted < 0 && !s.Stopping && PlacedOf(w).feed.enabled(PlacedOf(w)) {
			s.miss(PlacedOf(w))
		}
	}
}

// freeCall frees a row in the target.
func (tg *Target) freeCall(k detour.Calls, row int) {
	tid, slot := k.Marks(row)
	_ = tg.Proc.WriteMemory(make([]byte, 4), symbols.Addr(tid)) // fails only if the process is gone
	_ = tg.Proc.WriteMemory(make([]byte, 8), symbols.Addr(slot))
}

// exitInstead records the return of a call that is noted in mem, the table of the
// stage's exits, if it is, unless record is false, and frees its row.
func (s *Engine) exitInstead(tg *Target, st *stage, w planner.Request, mem []byte, record bool) {
	k := st.Exits().Calls
	sp := s.regs.GPR[fetch.SP]
	key := sp
	if k.Go {
		call, ok := goKey(tg.Proc, &s.regs)
		if !ok {
			return
		}
		if key, ok = detour.GoKey(call.G, call.SP); !ok {
			return
		}
	}
	in, ok := k.Find(mem, w.P.Id, key)
	ra, err := tg.word(symbols.Addr(sp))
	if !ok || err != nil || ra != in.Return && !k.Go {
		return
	}
	if was := s.regs; record {
		s.regs.IP = in.Real
		s.regs.GPR[fetch.SP] += 8 + uint64(w.Pop)
		s.record(PlacedOf(w), k.Entry(mem, in.Number)[:w.P.Program.EntrySize()], symbols.Addr(in.Real))
		s.regs = was
	}
	tg.freeCall(k, in.Number)
}

// faulted repairs what the kernel does to a program's action for a fault that
// its thread blocks, or the program ignores (tracee.RepairForced): the action is as
// it was when kprobe came, or the program's own doing since.
func (tg *Target) faulted(t *tracee.Thread, si *tracee.Siginfo) {
	sig := si.Signal()
	bit := uint64(1) << (sig - 1)
	was, known := tg.faults.actions[sig]
	ignored := !known && tg.faults.ignored&bit != 0
	if ignored {
		was.Handler = 1
	}
	if !ignored && (!known || was.Handler == 0) {
		return
	}
	th, laid := tg.thread(t), tg.faults.watch.laid[sig]
	status := caughtSignals(tg.Proc.PID())
	switch {
	case !ignored && signalSet(status, "SigCgt:")&bit != 0:
		if th.forced&bit == 0 || th.laid == laid {
			return
		}
		// The fallback handler was laid again between the fault and this stop.
		if err := t.BlockSignal(sig); err != nil {
			tg.Engine.Logf("the mask of thread %d could not be put back: %v", t.TID(), err)
		}
	case ignored && signalSet(status, "SigIgn:")&bit != 0:
	default:
		now, err := tg.Proc.Sigaction(tg.Engine.Run, t, sig)
		if err != nil || now.Handler != 0 {
			return
		}
		if err := t.RepairForced(sig, was, !ignored); err != nil {
			tg.Engine.Logf("the action of signal %d could not be put back: %v", sig, err)
		}
		if !ignored {
			th.forced |= bit
		}
	}
	th.laid = laid
}
