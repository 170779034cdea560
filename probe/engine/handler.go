package engine

import (
	"golang.org/x/sys/unix"

	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Handler answers the tracer's events. Its methods run on the tracer's thread, with the event's thread
// stopped.
//
// A thread that meets a breakpoint goes through these states:
//
//	at the site   the thread executes the int3 and stops (Breakpoint). Its hits are recorded,
//	              and its instruction pointer is set to the copy
//	in the copy   the thread executes the copy and jumps back, without another stop. If a
//	              PostHandler is due, the thread is stepped: it stops behind each instruction
//	              of the copy (Stepped) until it has left the copy
//
// Two events may happen in the copy. Both come to Signal:
//
//	a fault       the program gets the fault as one of the instruction at the site, with the
//	              registers that the thread had there
//	a signal      the signal is held: the thread is stepped out of the copy, and gets the
//	              signal in the program's own code
type Handler struct{ engine *Engine }

// HandlerOf is the Handler of an engine.
func HandlerOf(s *Engine) Handler { return Handler{s} }

// KnowsTrap implements tracee.TrapKnower. A thread behind the first byte of a longer instruction can
// only have trapped there, because no instruction begins at its second byte. The exception is a
// lock prefix, which programs jump over.
func (h Handler) KnowsTrap(t *tracee.Thread, at symbols.Addr) bool {
	const lock = 0xf0
	tg := h.engine.targetOf(t)
	if tg == nil {
		return false
	}
	st := tg.Sites[at]
	return st != nil && st.Armed && st.Length > 1 && st.code[0] != lock
}

// Breakpoint implements tracee.Handler.
func (h Handler) Breakpoint(t *tracee.Thread) tracee.Verdict {
	v := h.breakpoint(t)
	if tg := h.engine.targetOf(t); tg != nil && v != tracee.NotMine {
		// Only now, after the thread was moved away from the int3: the injected call returns to
		// where the thread is, even if kprobe is killed meanwhile.
		tg.fallbacksAtStop(t)
	}
	return h.stepping(t, h.engine.delayed(t, v))
}

// Stepped implements tracee.Handler: a thread has executed one instruction.
func (h Handler) Stepped(t *tracee.Thread) tracee.Verdict {
	return h.stepping(t, h.stepped(t))
}

// Signal implements tracee.Handler.
func (h Handler) Signal(t *tracee.Thread, si *tracee.Siginfo) tracee.Verdict {
	if told := h.engine.Opts.Signaled; told != nil {
		switch sig := si.Signal(); sig {
		case unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP:
			told(t.Process().PID(), sig)
		}
	}
	return h.stepping(t, h.signal(t, si))
}

// stepping counts in the memory file the threads that are being stepped. If the tracer is killed, the
// fallback handler knows by this number that a step's trap is kprobe's.
func (h Handler) stepping(t *tracee.Thread, v tracee.Verdict) tracee.Verdict {
	h.engine.busy.Store(0)
	tg := h.engine.targetOf(t)
	if tg == nil || tg.Area == nil {
		return v
	}
	if v == tracee.Step {
		tg.Steps++
		tg.thread(t).noteStep(tg.Area.File, true)
	}
	return v
}

// Resumed implements tracee.Resumer.
func (h Handler) Resumed(t *tracee.Thread) {
	tg := h.engine.targetOf(t)
	if tg == nil || tg.Area == nil {
		return
	}
	if th := tg.threads[t.TID()]; th != nil {
		th.noteStep(tg.Area.File, false)
	}
}

// noteStep counts the thread as one that is being stepped, or no longer.
func (th *thread) noteStep(m *memory.File, on bool) {
	if th.steps == on {
		return
	}
	th.steps = on
	at, n := m.Layout.Header.Off+memory.HeaderSteps, uint64(1)
	if !on {
		n = ^uint64(0)
	}
	m.Add64(at, n)
}

func (h Handler) breakpoint(t *tracee.Thread) tracee.Verdict {
	s := h.engine
	tg := s.targetOf(t)
	if tg == nil || tg.Area == nil {
		return tracee.NotMine
	}
	regs, err := t.Regs()
	if err != nil {
		return tracee.Resume
	}
	pc := symbols.Addr(regs.Rip - 1)
	th := tg.thread(t)
	if i, ok := tg.Area.Trampolines.At(pc); ok {
		s.returnedTo(tg, t, regs, i)
		return tracee.Resume
	}
	st := tg.Sites[pc]
	if st == nil || !st.Armed {
		if stage := tg.Patches.noRoom[pc]; !stage.None() {
			return s.hitStage(tg, th, stage)
		}
		if to, ok := tg.Patches.Guards[pc]; ok {
			regs.Rip = uint64(to)
			_ = t.SetRegs(regs) // fails only if the thread is gone
			return tracee.Resume
		}
		return h.strayTrap(tg, t, pc)
	}
	again := th.resumes(st, regs)
	th.faulted = nil
	if !again {
		if err := s.fill(tg, th); err != nil {
			return tracee.Resume
		}
		s.regs.IP = uint64(st.Addr)
		s.hitSite(tg, th, st)
		if s.jumped {
			return tracee.Resume
		}
	}
	// A hook may have removed the site, or the process may have ended.
	if !st.Armed {
		regs.Rip = uint64(st.Addr)
		_ = t.SetRegs(regs) // fails only if the thread is gone
		return tracee.Resume
	}
	regs.Rip = uint64(st.next())
	if err := t.SetRegs(regs); err != nil {
		return tracee.Resume // gone
	}
	th.post = s.due(st)
	if len(th.post) > 0 {
		return tracee.Step
	}
	return tracee.Resume
}

// returnedTo records the return of the call whose return trampoline the thread has hit, and continues
// the thread at the call's return address.
func (s *Engine) returnedTo(tg *Target, t *tracee.Thread, regs *unix.PtraceRegs, trampoline int) {
	if s.fill(tg, tg.thread(t)) != nil {
		return // gone
	}
	if to := s.leaveByTrampoline(tg, trampoline); !s.jumped {
		regs.Rip = uint64(to)
		_ = t.SetRegs(regs) // fails only if the thread is gone
	}
}

// hitSite does everything that a site serves, in the order of the program's events: a call returns
// here, then the instruction is reached. If a handler continues the thread elsewhere (s.jumped), the
// rest is skipped.
func (s *Engine) hitSite(tg *Target, th *thread, st *Site) {
	s.hitProbes(tg, th, st)
	for _, f := range st.hooks {
		f.run(th.t)
	}
}

func (s *Engine) hitProbes(tg *Target, th *thread, st *Site) {
	if st.lands {
		if s.leaveCall(tg, st); s.jumped {
			return
		}
	}
	if st.calls {
		s.leftBehind(tg)
	}
	for _, p := range st.probes {
		s.regs.IP = uint64(p.Where.Addr)
		switch {
		case p.Rarely().Landing != nil:
			s.land(tg, p)
		case p.user().handles():
			s.preHandler(p)
		case s.Inject != nil:
			s.injectAt(p)
		default:
			s.record(p, nil, 0)
		}
		if s.jumped {
			return
		}
	}
	s.regs.IP = uint64(st.Addr)
	if len(st.exits) > 0 && (st.jcc == 0 || jccTaken(st.jcc, s.regs.Flags)) {
		if s.leaveGo(tg, st); s.jumped {
			return
		}
	}
	if len(st.leaves) > 0 && (st.jcc == 0 || jccTaken(st.jcc, s.regs.Flags)) {
		if s.leaveFunction(s.Run, tg, th, st); s.jumped {
			return
		}
	}
	if len(st.returns) > 0 {
		s.enterCall(s.Run, tg, th, st)
	}
}

// strayTrap answers a trap at an address without a site. If the text has no int3 there any more, the
// thread trapped before the site was removed, and continues at the instruction. Otherwise the int3
// is the program's own.
func (h Handler) strayTrap(tg *Target, t *tracee.Thread, pc symbols.Addr) tracee.Verdict {
	var b [1]byte
	if _, err := tg.Proc.ReadMemory(b[:], pc); err != nil || b[0] == breakpoint {
		return tracee.NotMine
	}
	regs, err := t.Regs()
	if err != nil {
		return tracee.Resume
	}
	regs.Rip = uint64(pc)
	_ = t.SetRegs(regs) // fails only if the thread is gone
	return tracee.Resume
}

func (h Handler) stepped(t *tracee.Thread) tracee.Verdict {
	tg := h.engine.targetOf(t)
	if tg == nil {
		return tracee.Resume
	}
	regs, err := t.Regs()
	if err != nil {
		return tracee.Resume
	}
	pc := symbols.Addr(regs.Rip)
	switch {
	case len(tg.thread(t).post) == 0 && tg.ranCopy(t, regs):
	case tg.siteOfCopy(pc) != nil || tg.InShared(pc) || tg.Area != nil && tg.Area.Fallbacks.Holds(pc):
		return tracee.Step
	case !tg.Patches.StageAt(pc).None():
		if len(tg.thread(t).post) > 0 || tg.leadOut(t, regs) == tracee.Step {
			return tracee.Step
		}
	}
	return h.engine.left(tg, t)
}

func (h Handler) signal(t *tracee.Thread, si *tracee.Siginfo) tracee.Verdict {
	tg := h.engine.targetOf(t)
	if tg == nil {
		return tracee.Deliver
	}
	regs, err := t.Regs()
	if err != nil {
		return tracee.Deliver
	}
	pc := symbols.Addr(regs.Rip)
	if si.Stepped() && tg.ownCode(pc) {
		// The program steps itself (TF). This trap is in kprobe's code, and is dropped. The flag
		// stays set, so the program's next trap is behind kprobe's code.
		return tracee.Resume
	}
	if si.Synchronous() {
		tg.thread(t).post = nil // its instruction has had no effect
	} else if tg.Area != nil {
		if i, ok := tg.Area.Trampolines.At(pc); ok {
			// The thread has returned to the trampoline, but has not executed its int3. The
			// signal's frame must not hold this address, because the frame may outlive the session.
			h.engine.returnedTo(tg, t, regs, i)
			return tracee.Deliver
		}
		if tg.Area.Fallbacks.Holds(pc) {
			return tracee.Step
		}
	}
	if v, done := tg.inDetour(t, si); done {
		return v
	}
	st := tg.siteOfCopy(pc)
	if st == nil {
		return tracee.Deliver
	}
	if !si.Synchronous() {
		if len(tg.thread(t).post) == 0 && tg.ranCopy(t, regs) {
			return tracee.Deliver
		}
		return tracee.Step
	}
	before, ok := st.rewind(regs, tg.Proc)
	if !ok {
		return tracee.Deliver
	}
	if v, handled := h.engine.faultHandlers(tg, tg.thread(t), st, before, si); handled {
		return v
	}
	if si.Addr() == pc {
		si.SetAddr(st.Addr)
		if err := t.SetSiginfo(si); err != nil {
			return tracee.Deliver // gone
		}
	}
	if err := t.SetRegs(before); err == nil {
		tg.thread(t).fault(st, before, true)
	}
	return tracee.Deliver
}

// ranCopy leads a thread that has run the copy of a site to where the copy's jump leads. It returns false for any
// other thread.
func (tg *Target) ranCopy(t *tracee.Thread, regs *unix.PtraceRegs) bool {
	st := tg.siteOfCopy(symbols.Addr(regs.Rip))
	if st == nil {
		return false
	}
	if _, before := st.rewind(regs, tg.Proc); before {
		return false
	}
	out, ok := st.leave(regs, tg.Proc)
	return ok && tg.isText(symbols.Addr(out.Rip)) && tg.ledTo(t, out, tracee.Deliver) == tracee.Deliver
}

// ownCode reports whether an address is in kprobe's code.
func (tg *Target) ownCode(pc symbols.Addr) bool {
	return tg.Area != nil && (tg.Area.Code.Holds(pc) != nil || tg.Area.Fallbacks.Holds(pc))
}

// targetOf finds the target of a thread; nil if there is none.
func (s *Engine) targetOf(t *tracee.Thread) *Target { return s.Targets[t.Process().PID()] }
