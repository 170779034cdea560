package engine

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Signals that meet a thread in a detour
//
// The program's handler must find the thread at an instruction of the program, with the program's registers. To step
// it there takes a stop for each instruction of the detour, some forty. A program that has a signal every
// 200 µs would do nothing else. So the thread is led out at once where the detour's code shows that this is exact
// (effects):
//
//	undone    nothing that the detour does has been done. The thread continues at the site, and takes its hits anew when
//	          it comes back from the handler. The signal is delivered without another stop. If the site isn't the
//	          beginning of a jump, but an instruction under one, the tracer takes the hits, and the thread goes on
//	          as if all were done
//	open      the same, except that a record is open. It is marked as skipped
//	done      all that the detour does has been done. The thread continues at the displaced instructions, and is stepped
//	          through these
//	else      the thread is stepped, until one of the above is the case: some instructions between two effects
//
// A thread that has run the displaced instructions continues behind them, without the jump back.

// leadOut leads a thread that isn't at a fault out of a detour or copy, as far as that takes no step. The verdict is
// Deliver if it is out; Step if it is to be stepped. regs are the thread's registers.
func (tg *Target) leadOut(t *tracee.Thread, regs *unix.PtraceRegs) tracee.Verdict {
	pc := symbols.Addr(regs.Rip)
	if p := tg.Patches.LongJump(pc); p != nil {
		st := tg.Patches.StageAt(symbols.Addr(p.Plan.Detour))
		if st.None() || !st.jumpsHere() {
			regs.Rip = p.Plan.Detour
			return tg.ledTo(t, regs, tracee.Step)
		}
		regs.Rip = uint64(st.At)
		return tg.ledTo(t, regs, tracee.Deliver)
	}
	st := tg.Patches.StageAt(pc)
	if st.None() {
		return tracee.Step
	}
	if out, state, ok := st.InCopy(regs, tg.Proc); ok {
		switch {
		case state == insn.After && tg.isText(symbols.Addr(out.Rip)):
		case state != insn.After && out.Rip == uint64(st.At) && !st.Probed() && st.jumpsHere():
		case state != insn.After && tg.ranReturn(st, out):
		default:
			return tracee.Step
		}
		return tg.ledTo(t, out, tracee.Deliver)
	}
	if x := st.Trampolines(); x != nil && x.ReturnsFrom(regs.Rip) {
		return tg.leadOutOfReturn(t, regs, st)
	}
	if !st.Probed() {
		return tracee.Step
	}
	return tg.leadOutOfFrame(t, regs, st)
}

// leadOutOfFrame is leadOut for a thread that is in the code of a stage's probes.
func (tg *Target) leadOutOfFrame(t *tracee.Thread, regs *unix.PtraceRegs, st stage) tracee.Verdict {
	e, d := tg.effectsOf(st), st.Detour()
	off, writing := int(symbols.Addr(regs.Rip)-st.Base), d.Writing(regs.Rip)
	open := writing == detour.Open || writing == detour.Committing
	undone := e.undone.has(off) || open && e.open.has(off)
	undone = undone && (st.jumpsHere() || tg.takesInstead(st))
	if !undone && !e.done.has(off) {
		return tracee.Step
	}
	var r fetch.Regs
	tracee.FetchRegs(regs, &r)
	taken, ok, err := d.Undo(&r, tg.Proc)
	if !ok || err != nil || undone && open && !tg.dropRecord(st, taken, symbols.Addr(regs.Rcx)) {
		return tracee.Step
	}
	out := *regs
	fromFetch(&r, &out)
	if int64(out.Orig_rax) >= 0 {
		out.Orig_rax = ^uint64(0) // the system call was the detour's
	}
	out.Rip = uint64(st.At)
	if err := t.EndSequence(tg.inStage); err != nil {
		return tracee.Deliver // gone
	}
	if undone && st.jumpsHere() {
		return tg.ledTo(t, &out, tracee.Deliver)
	}
	if undone {
		v := tg.ledTo(t, &out, tracee.Step)
		if s, th := tg.Engine, tg.thread(t); v == tracee.Step && s.fill(tg, th) == nil {
			s.takeAll(tg, th, st, 0)
		}
	}
	if x := st.Trampolines(); x != nil {
		var here fetch.Regs
		tracee.FetchRegs(regs, &here)
		// The entry's own call writes the same to the slot, if kprobe is killed now.
		slot, ok := x.Enters(regs.Rip, &here, out.Rsp, tg.Proc)
		if !ok || slot != 0 && tg.Proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, slot), symbols.Addr(out.Rsp)) != nil {
			return tracee.Step
		}
	}
	if out.Rip = uint64(st.At); st.Trampolines() == nil && tg.ranReturn(st, &out) {
		return tg.ledTo(t, &out, tracee.Deliver)
	}
	out.Rip = uint64(st.CopyAt())
	return tg.ledTo(t, &out, tracee.Step)
}

// leadOutOfReturn is leadOut for a thread that has returned to a return trampoline. If it has only that, it is led back
// to a return instruction of the function: it is there with the same registers, and returns to the trampoline anew. If
// everything is done, it is led to the caller.
func (tg *Target) leadOutOfReturn(t *tracee.Thread, regs *unix.PtraceRegs, st stage) tracee.Verdict {
	e, x, off := tg.effectsOf(st), st.Trampolines(), int(symbols.Addr(regs.Rip)-st.Base)
	done := e.done.has(off)
	if !done && !(x.Instance(regs.Rip) != 0 || e.undone.has(off)) {
		return tracee.Step
	}
	out, ok := runningWay(st.Way()).leave(st, regs, tg.Proc)
	if !ok {
		return tracee.Step
	}
	if done {
		if to := symbols.Addr(out.Rip); tg.ownCode(to) || !tg.isText(to) {
			return tracee.Step
		}
		return tg.ledTo(t, out, tracee.Deliver)
	}
	out.Rsp -= 8
	trampoline, ok := x.Returned(regs.Rip, out.Rsp, tg.Proc)
	slot, err := tg.word(symbols.Addr(out.Rsp))
	ret := tg.returnOf(e, st)
	if !ok || err != nil || slot != trampoline || ret == 0 {
		// Once the slot has the caller's address, it must keep it: kprobe may be killed before the thread is moved.
		return tracee.Step
	}
	out.Rip = uint64(ret)
	return tg.ledTo(t, out, tracee.Deliver)
}

// returnOf returns the address of a return instruction of a stage's function that is in the text; 0 if there is none, or
// if the function also jumps to others, by which its calls may return.
func (tg *Target) returnOf(e *effects, st stage) symbols.Addr {
	if e.looked {
		if e.ret != 0 && tg.Patches.Covering(e.ret, 1) == nil && tg.Sites[e.ret] == nil {
			return e.ret
		}
		return 0
	}
	e.looked = true
	f := tg.instructions(st.At)
	if f == nil || !f.Closed() {
		return 0
	}
	const ret = 0xc3
	for _, x := range f.Exits() {
		switch _, code, ok := f.At(x.Addr); {
		case x.Kind.Onward():
			e.ret = 0
			return 0
		case x.Kind == insn.ExitRet && ok && code[0] == ret:
			e.ret = symbols.Addr(x.Addr)
		}
	}
	return tg.returnOf(e, st)
}

// ranReturn does what a displaced return instruction does, if a thread with these registers, at a site of the stage, is at
// one and returns to the program. The instruction needs no step then.
func (tg *Target) ranReturn(st stage, regs *unix.PtraceRegs) bool {
	const ret = 0xc3
	off, code := regs.Rip-uint64(st.At), st.Code()
	if tg.shadowStack || off >= uint64(len(code)) || code[off] != ret {
		return false
	}
	to, err := tg.word(symbols.Addr(regs.Rsp))
	if err != nil || tg.ownCode(symbols.Addr(to)) || !tg.isText(symbols.Addr(to)) {
		return false
	}
	regs.Rip = to
	regs.Rsp += 8
	return true
}

// ledTo sets a thread's registers.
func (tg *Target) ledTo(t *tracee.Thread, regs *unix.PtraceRegs, v tracee.Verdict) tracee.Verdict {
	if err := t.SetRegs(regs); err != nil {
		return tracee.Deliver // gone
	}
	return v
}

// jumpsHere reports whether a thread at the stage's site comes to the stage by the patch's jump, without a trap.
func (s stage) jumpsHere() bool {
	p := s.patch
	return p.Armed && uint64(s.At) == p.Plan.At && uint64(s.Base) == p.Plan.Detour && !p.Plan.GuardsStart()
}

// isText reports whether the program may be at an address: its own instruction is there, or a jump or breakpoint that
// takes the instruction's place.
func (tg *Target) isText(a symbols.Addr) bool {
	p := tg.Patches.Covering(a, 1)
	return p == nil || uint64(a) == p.Plan.At && !p.Plan.GuardsStart()
}

// takesInstead reports whether the tracer can take the hits of a stage exactly as its detour would.
func (tg *Target) takesInstead(st stage) bool {
	if !st.patch.Armed || tg.Engine.Inject != nil || st.Trampolines() != nil {
		return false
	}
	for _, w := range st.Wants() {
		x := w.P.Rarely()
		if w.Kind == planner.Return || w.Notes || w.Open() != nil || x.Landing != nil || x.Birth != nil {
			return false
		}
	}
	return len(st.Wants()) > 0
}

// effectsKept bounds for how many stages effects are kept.
const effectsKept = 1 << 12

// effectsOf returns the effects of a stage's code.
func (tg *Target) effectsOf(st stage) *effects {
	if e := tg.effects[st.Stage]; e != nil {
		return e
	}
	e := &effects{}
	code := make([]byte, st.Size)
	if _, err := tg.Proc.ReadMemory(code, st.Base); err != nil {
		return e
	}
	if len(tg.effects) >= effectsKept || tg.effects == nil {
		tg.effects = map[*planner.Stage]*effects{}
	}
	d := st.Detour()
	e = findEffects(&d, code, int(st.CopyAt()-st.Base), tg.Params.Rseq)
	tg.effects[st.Stage] = e
	return e
}
