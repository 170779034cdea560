package engine

import (
	"encoding/binary"
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
// A detour does more than the displaced instructions: it pushes registers, reads the time and the
// thread's control block, and writes to the rings. If the program has made one of these
// impossible, the detour faults. The tracer sees the thread's stop before the signal is delivered.
// What it does depends on the faulting instruction:
//
//	a load of a fetch  the thread continues where the value is recorded as a fault (detour.Fault)
//	an Ask             the thread gets the answer, and continues after the instruction
//	any other          the detour is rolled back: the thread gets the registers that it had at
//	                   the site, the tracer takes the hits as for a breakpoint, and the thread
//	                   continues at the displaced instructions. Their faults are the program's own
//
// So if a stack has no room for a detour's frame, the program gets a stack overflow only at an
// instruction of its own that overflows.

// Codes of SIGBUS and SIGSYS (asm-generic/siginfo.h).
const (
	busAdrAln  = 1
	sysSeccomp = 1
)

// caused reports whether an instruction of the thread raised the signal: by a fault, or by a
// system call that a seccomp filter traps.
func caused(si *tracee.Siginfo) bool {
	return si.Synchronous() && si.Signal() != unix.SIGTRAP || si.Signal() == unix.SIGSYS && si.Code() == sysSeccomp
}

// misaligned reports whether an access faulted only for its alignment, which the processor checks
// if the program has set EFLAGS.AC.
func misaligned(si *tracee.Siginfo) bool {
	return si.Signal() == unix.SIGBUS && si.Code() == busAdrAln
}

// answered answers an Ask of a detour: the time or the thread number. done is false if the thread
// is at no such instruction.
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

// rolledBack moves a thread that faults in a detour out of it. done is false if the thread is in
// no detour, or at a displaced instruction.
func (tg *Target) rolledBack(t *tracee.Thread, si *tracee.Siginfo, regs *unix.PtraceRegs) (v tracee.Verdict, done bool) {
	st, in := tg.StageOf(regs)
	if st.None() || !st.Probed() {
		return tracee.Deliver, false
	}
	if _, _, ok := st.InCopy(in, tg.Proc); ok {
		return tracee.Deliver, false
	}
	at := faulting{t: t, si: si, regs: regs, st: st, in: in}
	if st.Way() != nil {
		return runningWay(st.Way()).rollBack(tg, at)
	}
	return tg.detourRolledBack(at)
}

// faulting is a thread that faults in a detour.
type faulting struct {
	t    *tracee.Thread
	si   *tracee.Siginfo
	regs *unix.PtraceRegs // the thread's registers
	st   stage            // the stage that the thread is in, or that has called the shared code
	in   *unix.PtraceRegs // the registers in the stage: those after the call if it called
}

// detourRolledBack is rolledBack for stages without return trampolines: their probes follow no
// calls, or follow them by exits.
func (tg *Target) detourRolledBack(at faulting) (v tracee.Verdict, done bool) {
	t, st, in := at.t, at.st, at.in
	var r fetch.Regs
	tracee.FetchRegs(in, &r)
	d := st.Detour()
	taken, ok, err := d.Undo(&r, tg.Proc)
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
		s.takeAll(tg, th, st, taken)
	}
	return sendTo(tg, t, &out, st.CopyAt()), true
}

// takeAll takes the hits of a stage in place of its detour, except those that the detour has taken. The session's
// context is that of the site.
func (s *Engine) takeAll(tg *Target, th *thread, st stage, taken int) {
	list := st.Wants()
	common := st.Leaves() && st.Exits().Calls().Common && !list[len(list)-1].Alone
	if common {
		list = list[:st.OwnHits()]
	}
	for _, w := range list[min(taken, len(list)):] {
		s.takeInstead(tg, th, st, w)
	}
	if common {
		s.commonInstead(tg, th, st, taken)
	}
}

// inStage reports whether an address is in a detour, or in code that detours share.
func (tg *Target) inStage(a symbols.Addr) bool {
	return !tg.Patches.StageAt(a).None() || tg.InShared(a)
}

// dropRecord marks a record that a detour had begun and not committed as skipped. at is the address
// of the record; taken is the number of hits that the detour has begun. If dropRecord returns true,
// the last of these hits is still to be taken.
func (tg *Target) dropRecord(st stage, taken int, at symbols.Addr) bool {
	if taken == 0 || taken > len(st.Wants()) || st.Wants()[taken-1].Kind == planner.Return {
		return false
	}
	m := tg.Area.File
	off := int64(at - m.Base)
	if at < m.Base || off&(ring.Unit-1) != 0 || off+ring.HeaderSize > int64(len(m.Mem)) {
		return false
	}
	id, units, committed := ring.SplitState(m.Load32(off + ring.StateOff))
	if committed || units == 0 || id != st.Wants()[taken-1].P.Id {
		return false
	}
	m.Store32(off+ring.StateOff, ring.SkipWord(units)) // atomic: the reader may be reading it
	return true
}

// takeInstead takes a probe's hit in place of its detour. The session's context is that of the
// site.
func (s *Engine) takeInstead(tg *Target, th *thread, st stage, w planner.Request) {
	switch w.Kind {
	case planner.LoneExit:
		if ra, err := tg.word(symbols.Addr(s.regs.GPR[fetch.SP])); err == nil {
			s.returnAlone(PlacedOf(w), symbols.Addr(ra))
		}
	case planner.Return:
		// No detour notes the call: it is missed.
		if !s.Stopping && PlacedOf(w).feed.enabled(PlacedOf(w)) {
			s.miss(PlacedOf(w))
		}
		if st.Exits() != nil && st.Exits().Calls().Common && w.Twins&planner.TwinBefore == 0 && !st.Exits().StartsOver {
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
		if mem := tg.callsOf(st.Exits().Calls(), s.regs.GPR[fetch.SP]); mem != nil {
			s.exitInstead(tg, st, w, mem, true)
		}
	default:
		s.regs.IP = uint64(w.P.Where.Addr)
		if w.P.Rarely().Landing != nil {
			s.land(tg, PlacedOf(w))
			return
		}
		if s.Inject != nil { // the call isn't changed: it counts as filtered
			if !s.Stopping && PlacedOf(w).feed.enabled(PlacedOf(w)) {
				PlacedOf(w).feed.producer.Count(s.ctx.CPU, w.P.Id, ring.CounterFiltered, 1)
			}
			return
		}
		s.record(PlacedOf(w), nil, 0)
	}
}

// callsOf reads the rows of a table that may hold calls with the given slot. The result has the
// table's size, for Calls.With and the like, but only these rows are read: other bytes are
// undefined. It is valid until the next callsOf, and nil if the table can't be read.
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

// passInstead does the work of a stage that passes calls on, in place of its detour: it marks a
// call as passing on, or frees the row of a call that was abandoned.
func (s *Engine) passInstead(tg *Target, th *thread, st stage, w planner.Request, way detour.Passing) {
	if w.Conditional && !jccTaken(w.Inst().Opcode, s.regs.Flags) {
		return
	}
	k, sp := st.Exits().Calls(), s.regs.GPR[fetch.SP]
	if w.Open() != nil {
		to, ok := fetch.ValueOf(w.Open(), &s.regs, tg.Proc)
		if set := st.Exits().PassesTo(st.Wants()).To; set == nil || ok && !set.Has(to) {
			s.followOnward(tg, th, st)
			return
		}
	}
	mem := tg.callsOf(k, sp)
	ra, err := tg.word(symbols.Addr(sp))
	if mem == nil || err != nil {
		return
	}
	marked, free := k.Pass(mem, sp, ra, way)
	for _, row := range marked {
		_ = tg.Proc.WriteMemory([]byte{k.Marked(mem, row)}, symbols.Addr(k.Mark(row))) // fails only if the process is gone
	}
	for _, row := range free {
		tg.freeCall(k, row)
	}
}

// commonInstead does the rest of the work of a stage that uses a common table, except for exits that are hits by
// themselves. The table says which calls are left to end. The detour has taken the hit of the call with
// the number taken, counted from 1, but has not freed its row.
func (s *Engine) commonInstead(tg *Target, th *thread, st stage, taken int) {
	if w := st.Wants()[0]; w.Passing != detour.NotPassing {
		if s.passInstead(tg, th, st, w, w.Passing); w.Notes { // for all of them
			s.missedJump(st, taken)
		}
		return
	}
	k, sp := st.Exits().Calls(), s.regs.GPR[fetch.SP]
	mem := tg.callsOf(k, sp)
	if mem == nil {
		return
	}
	if ra, err := tg.word(symbols.Addr(sp)); err == nil && taken > len(st.Wants()) {
		if in, ok := k.First(mem, sp, ra); ok { // the detour has counted it
			tg.endCall(k, mem, in.Number, k.OwnersOf(mem, in.Number)[0])
		}
	}
	done, own := map[uint32]bool{}, st.OwnHits()
	for i, w := range st.Wants()[own:] {
		done[w.P.Id] = true
		s.exitInstead(tg, st, w, mem, own+i != taken-1)
	}
	if !k.Anywhere {
		return
	}
	for _, in := range k.With(mem, sp) {
		for _, id := range k.OwnersOf(mem, in.Number) {
			if done[id] {
				continue
			}
			if p := tg.probeOf(id); p != nil && p.ByExits != nil && p.ByExits.Anywhere {
				w := st.Wants()[own]
				w.P = &p.Probe
				s.exitInstead(tg, st, w, mem, true)
			}
		}
	}
}

// missedJump counts as missed the calls that a jump to another function should have noted, except
// the first noted ones.
func (s *Engine) missedJump(st stage, noted int) {
	for _, w := range st.Wants() {
		if !w.Notes || w.Conditional && !jccTaken(w.Inst().Opcode, s.regs.Flags) {
			continue
		}
		if noted--; noted < 0 && !s.Stopping && PlacedOf(w).feed.enabled(PlacedOf(w)) {
			s.miss(PlacedOf(w))
		}
	}
}

// freeCall frees a row of a table in the target's memory.
func (tg *Target) freeCall(k detour.Calls, row int) {
	tid, slot := k.Marks(row)
	_ = tg.Proc.WriteMemory(make([]byte, 4), symbols.Addr(tid)) // fails only if the process is gone
	_ = tg.Proc.WriteMemory(make([]byte, 8), symbols.Addr(slot))
}

// endCall takes a probe's call out of a row of a table in common, also in the target's memory. mem is a copy of the
// rows. The thread whose call it is doesn't run.
func (tg *Target) endCall(k detour.Calls, mem []byte, row int, id uint32) {
	if k.Common {
		if words, left := k.Disown(mem, row, id); left {
			_ = tg.writeNobody(words) // fails only if the process is gone
			return
		}
	}
	k.Free(mem, row)
	tg.freeCall(k, row)
}

// writeNobody takes calls out of rows, by the addresses of their owners.
func (tg *Target) writeNobody(words []uint64) error {
	for _, at := range words {
		if err := tg.Proc.WriteMemory(binary.LittleEndian.AppendUint32(nil, detour.Nobody), symbols.Addr(at)); err != nil {
			return err
		}
	}
	return nil
}

// exitInstead ends a call in place of its detour: it records the return and frees the call's row.
// mem is the table of the stage's exits. If the call isn't in it, nothing happens. If record is
// false, the row is only freed.
func (s *Engine) exitInstead(tg *Target, st stage, w planner.Request, mem []byte, record bool) {
	k := st.Exits().Calls()
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
	tg.endCall(k, mem, in.Number, w.P.Id)
}

// faulted repairs the program's signal action after a fault in kprobe's code. If the thread blocks
// the signal, or the program ignores it, the kernel sets the action to the default and unblocks
// the signal (tracee.RepairForced). faulted sets the action that the program had when kprobe came,
// unless the program has changed it since.
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
		// The fallback handler was set again between the fault and this stop.
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
