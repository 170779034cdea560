package engine

import (
	"runtime/debug"

	"golang.org/x/sys/unix"

	"kprobe/probe/memory"
	"kprobe/probe/regs"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
)

// How handlers are called
//
// Handlers run on the tracer's thread while the thread that hit the probe is stopped. A handler gets
// a copy of the thread's registers. When it returns, the copy is written to the thread, and the next
// handler at that place sees it. If it panics, the copy is dropped and the thread continues with its
// own registers.
//
// The order at a hit is: pre handlers, in order of registration, until one skips the instruction;
// the instruction in its copy; fault handlers if it faults, else post handlers (posthandler.go).

// callHandler calls a handler as f. r are the registers that the handler sees. ok is false if it
// panicked.
func (s *Engine) callHandler(p *Placed, name string, r *regs.Regs, f func()) (ok bool) {
	defer func() {
		s.Handling = false
		regs.End(r)
		if v := recover(); v != nil {
			ok = false
			s.handlerFailed(p.user().Failed(name, v, debug.Stack()), p.Ev)
		}
	}()
	s.Handling = true
	f()
	return true
}

// handlerFailed switches a handler's probe off and ends the run with the handler's error.
func (s *Engine) handlerFailed(err error, ev *Event) {
	ev.turn(false)
	if s.Fatal == nil {
		s.Fatal = err
	}
	s.endRun()
}

// apply writes a handler's registers to the thread, except the instruction pointer.
func (s *Engine) apply(r *regs.Regs) {
	live, err := s.at.t.Regs()
	if err != nil {
		return // gone
	}
	if v := regs.Vector(r); v != nil {
		if err := s.at.t.SetVector(v); err != nil {
			s.Logf("the xmm registers of thread %d: %v", s.at.t.TID(), err)
		}
	}
	ip, call := live.Rip, live.Orig_rax
	*live = regs.Registers(r)
	live.Rip, live.Orig_rax = ip, call
	at := s.regs.IP
	tracee.FetchRegs(live, &s.regs)
	s.regs.IP = at
}

// jump continues the thread at the instruction pointer that a handler has set.
func (s *Engine) jump(r *regs.Regs) {
	live, err := s.at.t.Regs()
	if err != nil {
		return // gone
	}
	live.Rip = uint64(r.IP())
	s.jumped = true
}

// takes reports whether a probe takes a hit now.
func (s *Engine) takes(p *Placed) bool {
	return !s.Stopping && !p.removed && p.feed.enabled(p)
}

// preHandler takes a hit of a probe with handlers.
func (s *Engine) preHandler(p *Placed) {
	if !s.takes(p) {
		return
	}
	u := p.user()
	count := func(counter int) { p.feed.producer.Count(s.ctx.CPU, p.Id, counter, 1) }
	var r *regs.Regs
	if u.Pre != nil || u.Call != nil {
		r = s.newRegs(p)
	}
	if r == nil { // there is no handler to call, or the thread is gone
		count(ring.CounterHits)
		return
	}
	skip := false
	name := "PreHandler"
	run := func() { skip = u.Pre(r) }
	if u.Call != nil {
		entry, ok := s.bindEntry(p, r)
		if !ok {
			count(ring.CounterLost)
			return
		}
		name = "Entry"
		run = func() { skip = entry() }
	}
	count(ring.CounterHits)
	if !s.callHandler(p, name, r, run) {
		return
	}
	s.apply(r)
	if skip {
		s.jump(r)
	}
}

// faultHandlers offers a fault of a site's instruction to the fault handlers of its probes. before
// are the registers at the instruction. handled is true if a handler has handled it.
func (s *Engine) faultHandlers(tg *Target, th *thread, st *Site, before *unix.PtraceRegs, si *tracee.Siginfo) (v tracee.Verdict, handled bool) {
	for _, list := range [][]*Placed{st.probes, st.returns} {
		for _, p := range list {
			if p.user() == nil || p.user().Fault == nil || !s.takes(p) {
				continue
			}
			if err := s.fill(tg, th); err != nil {
				return tracee.Deliver, false
			}
			s.regs.IP = before.Rip
			if _, err := th.t.Regs(); err != nil {
				return tracee.Deliver, false // gone
			}
			r := regs.New(*before, s.regsOf(p))
			f := &Fault{Signal: int(si.Signal()), Code: si.Code(), Addr: si.Addr()}
			if f.Addr >= st.slot && f.Addr < st.slot+memory.SlotSize {
				f.Addr = st.Addr
			}
			done := false
			if !s.callHandler(p, "FaultHandler", r, func() { done = p.user().Fault(r, f) }) || !done {
				continue
			}
			tg.faulted(th.t, si)
			s.apply(r)
			if r.IP() != st.Addr {
				s.jump(r)
				return tracee.Resume, true
			}
			live, err := th.t.Regs()
			if err != nil {
				return tracee.Resume, true // gone
			}
			// The thread meets the breakpoint again, and it is recognised as the same hit.
			live.Rip = uint64(st.Addr)
			th.fault(st, live, false)
			return tracee.Resume, true
		}
	}
	return tracee.Deliver, false
}

// entryHandler begins an instance of a Kretprobe and calls its entry handler. skip says that the
// call is not to be followed.
func (s *Engine) entryHandler(p *Placed, in *Instance) (skip bool) {
	u := p.user()
	in.User = u.Follow(in.User, in)
	if u.Entry == nil {
		return false
	}
	r := s.newRegs(p)
	if r == nil {
		return true // gone
	}
	if !s.callHandler(p, "EntryHandler", r, func() { skip = u.Entry(in.User, r) }) {
		return true
	}
	s.apply(r)
	return skip
}

// returnHandler ends an instance of a Kretprobe and calls its handler.
func (s *Engine) returnHandler(in *Instance) {
	p := in.Probe
	if s.Stopping || p.removed || in.User == nil {
		return
	}
	p.feed.producer.Count(s.ctx.CPU, p.Id, ring.CounterHits, 1)
	if p.user().Left == nil {
		return
	}
	r := s.newRegs(p)
	if r == nil {
		return // gone
	}
	if !s.callHandler(p, "Handler", r, func() { p.user().Left(in.User, in.Return, r) }) {
		return
	}
	s.apply(r)
	if at := uint64(r.IP()); at != s.regs.IP {
		s.jump(r)
		s.regs.IP = at
	}
}

// newRegs makes the registers that a handler of a probe sees; nil if the thread is gone.
func (s *Engine) newRegs(p *Placed) *regs.Regs { return s.newRegsOf(s.regsOf(p)) }

func (s *Engine) newRegsOf(of regs.Of) *regs.Regs {
	live, err := s.at.t.Regs()
	if err != nil {
		return nil
	}
	r := *live
	r.Rip = s.regs.IP
	return regs.New(r, of)
}

// regsOf is what a handler of a probe can ask besides the registers.
func (s *Engine) regsOf(p *Placed) regs.Of {
	m := p.Where.Module
	return regs.Of{
		Thread: s.at.t, Memory: p.target.Proc, Space: p.target.Space,
		PID: s.ctx.PID, TID: s.ctx.TID, CPU: s.ctx.CPU, Comm: s.ctx.Comm, Time: s.now,
		Place: p.Where.Addr, Entry: p.Where.Offset == 0, Shadow: p.target.shadowStack,
		Go: m != nil && m.File != nil && m.File.IsGo(),
	}
}
