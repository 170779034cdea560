package probe

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
// All run on the tracer's thread while the thread that hit the probe is
// stopped. A handler gets a copy of the thread's registers. When it returns,
// what it changed becomes the thread's, and the next handler at that place sees
// it; when it panics the copy is dropped and the thread goes on as it was.
//
// A hit, in order: pre handlers, in order of registration, until one skips the
// instruction; the instruction in its copy; fault handlers, if it faults, or post
// handlers (posthandler.go).

// callHandler runs a handler over the registers of the thread at hand, whose program
// is at ip; ok is false if it panicked.
func (s *engine) callHandler(p *placed, name string, r *Regs, f func()) (ok bool) {
	defer func() {
		s.handling = false
		regs.End(r)
		if v := recover(); v != nil {
			ok = false
			s.handlerFailed(p.user.failed(name, v, debug.Stack()), p.ev)
		}
	}()
	s.handling = true
	f()
	return true
}

// handlerFailed ends the run with the error of a handler, and switches its
// probe off.
func (s *engine) handlerFailed(err error, ev *event) {
	ev.turn(false)
	if s.fatal == nil {
		s.fatal = err
	}
	s.endRun()
}

// apply makes what a handler changed the thread's, but for the instruction
// pointer.
func (s *engine) apply(r *Regs) {
	live, err := s.at.t.Regs()
	if err != nil {
		return // gone
	}
	if v := regs.Vector(r); v != nil {
		if err := s.at.t.SetVector(v); err != nil {
			s.logf("the xmm registers of thread %d: %v", s.at.t.TID(), err)
		}
	}
	ip, call := live.Rip, live.Orig_rax
	*live = regs.Registers(r)
	live.Rip, live.Orig_rax = ip, call
	at := s.regs.IP
	tracee.FetchRegs(live, &s.regs)
	s.regs.IP = at
}

// jump leads the thread to where a handler has set its instruction pointer.
func (s *engine) jump(r *Regs) {
	live, err := s.at.t.Regs()
	if err != nil {
		return // gone
	}
	live.Rip = uint64(r.IP())
	s.jumped = true
}

// takes reports whether a probe takes a hit now.
func (s *engine) takes(p *placed) bool {
	return !s.stopping && !p.removed && p.feed.enabled(p)
}

// preHandler takes a hit of a probe with handlers.
func (s *engine) preHandler(p *placed) {
	if !s.takes(p) {
		return
	}
	u := p.user
	count := func(counter int) { p.feed.producer.Count(s.ctx.CPU, p.id, counter, 1) }
	var r *Regs
	if u.pre != nil || u.call != nil {
		r = s.newRegs(p)
	}
	if r == nil { // nothing to call, or the thread is gone
		count(ring.CounterHits)
		return
	}
	skip := false
	name := "PreHandler"
	run := func() { skip = u.pre(r) }
	if u.call != nil {
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

// faultHandlers offers a fault of a site's instruction to the handlers of its
// probes. before are the registers at the instruction.
func (s *engine) faultHandlers(tg *target, th *thread, st *site, before *unix.PtraceRegs, si *tracee.Siginfo) (v tracee.Verdict, handled bool) {
	for _, list := range [][]*placed{st.probes, st.returns} {
		for _, p := range list {
			if p.user == nil || p.user.fault == nil || !s.takes(p) {
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
				f.Addr = st.addr
			}
			done := false
			if !s.callHandler(p, "FaultHandler", r, func() { done = p.user.fault(r, f) }) || !done {
				continue
			}
			tg.faulted(th.t, si)
			s.apply(r)
			if r.IP() != st.addr {
				s.jump(r)
				return tracee.Resume, true
			}
			live, err := th.t.Regs()
			if err != nil {
				return tracee.Resume, true // gone
			}
			// It meets the breakpoint again, which knows it for the same hit.
			live.Rip = uint64(st.addr)
			th.fault(st, live, false)
			return tracee.Resume, true
		}
	}
	return tracee.Deliver, false
}

// entryHandler begins an instance of a Kretprobe, and reports whether its call
// is not to be followed.
func (s *engine) entryHandler(p *placed, in *instance) (skip bool) {
	u := p.user
	in.User = u.follow(in.User, in)
	if u.entry == nil {
		return false
	}
	r := s.newRegs(p)
	if r == nil {
		return true // gone
	}
	if !s.callHandler(p, "EntryHandler", r, func() { skip = u.entry(in.User, r) }) {
		return true
	}
	s.apply(r)
	return skip
}

// returnHandler ends an instance of a Kretprobe.
func (s *engine) returnHandler(in *instance) {
	p := in.Probe
	if s.stopping || p.removed || in.User == nil {
		return
	}
	p.feed.producer.Count(s.ctx.CPU, p.id, ring.CounterHits, 1)
	if p.user.left == nil {
		return
	}
	r := s.newRegs(p)
	if r == nil {
		return // gone
	}
	if !s.callHandler(p, "Handler", r, func() { p.user.left(in.User, in.Return, r) }) {
		return
	}
	s.apply(r)
	if at := uint64(r.IP()); at != s.regs.IP {
		s.jump(r)
		s.regs.IP = at
	}
}

// newRegs is what a handler of a probe sees; nil if the thread is gone.
func (s *engine) newRegs(p *placed) *Regs { return s.newRegsOf(s.regsOf(p)) }

func (s *engine) newRegsOf(of regs.Of) *Regs {
	live, err := s.at.t.Regs()
	if err != nil {
		return nil
	}
	r := *live
	r.Rip = s.regs.IP
	return regs.New(r, of)
}

// regsOf is what a handler of a probe sees besides registers.
func (s *engine) regsOf(p *placed) regs.Of {
	m := p.where.Module
	return regs.Of{
		Thread: s.at.t, Memory: p.target.proc, Space: p.target.space,
		PID: s.ctx.PID, TID: s.ctx.TID, CPU: s.ctx.CPU, Comm: s.ctx.Comm, Time: s.now,
		Place: p.where.Addr, Entry: p.where.Offset == 0, Shadow: p.target.shadowStack,
		Go: m != nil && m.File != nil && m.File.IsGo(),
	}
}
