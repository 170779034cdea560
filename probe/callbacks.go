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
func (s *Session) callHandler(u *registered, name string, r *Regs, f func()) (ok bool) {
	defer func() {
		s.handling = false
		regs.End(r)
		if v := recover(); v != nil {
			ok = false
			s.handlerFailed(&HandlerError{Probe: u.probe, Handler: name, Value: v, Stack: debug.Stack()}, u)
		}
	}()
	s.handling = true
	f()
	return true
}

// handlerFailed ends the run with the error of a handler, and switches its
// probe off.
func (s *Session) handlerFailed(err *HandlerError, u *registered) {
	if ev := u.kp.ev.Load(); ev != nil {
		ev.turn(false)
	}
	if s.fatal == nil {
		s.fatal = err
	}
	s.endRun()
}

// apply makes what a handler changed the thread's, but for the instruction
// pointer.
func (s *Session) apply(r *Regs) {
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
func (s *Session) jump(r *Regs) {
	live, err := s.at.t.Regs()
	if err != nil {
		return // gone
	}
	live.Rip = uint64(r.IP())
	s.jumped = true
}

// takes reports whether a probe takes a hit now.
func (s *Session) takes(p *placed) bool {
	return !s.stopping && !p.removed && p.feed.enabled(p)
}

// preHandler takes a hit of a probe with handlers.
func (s *Session) preHandler(p *placed) {
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
	run := func() { skip = u.pre(u.kp, r) }
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
	if !s.callHandler(u, name, r, run) {
		return
	}
	s.apply(r)
	if skip {
		s.jump(r)
	}
}

// faultHandlers offers a fault of a site's instruction to the handlers of its
// probes. before are the registers at the instruction.
func (s *Session) faultHandlers(tg *target, th *thread, st *site, before *unix.PtraceRegs, si *tracee.Siginfo) (v tracee.Verdict, handled bool) {
	for _, list := range [][]*placed{st.probes, st.returns} {
		for _, p := range list {
			if p.user == nil || p.user.kp.FaultHandler == nil || !s.takes(p) {
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
			if !s.callHandler(p.user, "FaultHandler", r, func() { done = p.user.kp.FaultHandler(p.user.kp, r, f) }) || !done {
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
func (s *Session) entryHandler(p *placed, in *instance) (skip bool) {
	k := p.user.kret
	begin(in, k)
	if k.EntryHandler == nil {
		return false
	}
	r := s.newRegs(p)
	if r == nil {
		return true // gone
	}
	if !s.callHandler(p.user, "EntryHandler", r, func() { skip = k.EntryHandler(in.User, r) }) {
		return true
	}
	s.apply(r)
	return skip
}

// begin makes an instance's public side that of a new call.
func begin(in *instance, k *Kretprobe) {
	data := []byte(nil)
	if in.User != nil {
		data = in.User.Data
	}
	if len(data) != k.DataSize {
		data = make([]byte, k.DataSize)
	}
	clear(data)
	in.User = &KretprobeInstance{Probe: k, RetAddr: in.Return, PID: in.TGID, TID: in.TID, Data: data}
}

// returnHandler ends an instance of a Kretprobe.
func (s *Session) returnHandler(in *instance) {
	p := in.Probe
	if s.stopping || p.removed || in.User == nil {
		return
	}
	p.feed.producer.Count(s.ctx.CPU, p.id, ring.CounterHits, 1)
	k := p.user.kret
	if k.Handler == nil {
		return
	}
	in.User.RetAddr = in.Return
	r := s.newRegs(p)
	if r == nil {
		return // gone
	}
	if !s.callHandler(p.user, "Handler", r, func() { k.Handler(in.User, r) }) {
		return
	}
	s.apply(r)
	if at := uint64(r.IP()); at != s.regs.IP {
		s.jump(r)
		s.regs.IP = at
	}
}

// newRegs is what a handler of a probe sees; nil if the thread is gone.
func (s *Session) newRegs(p *placed) *Regs { return s.newRegsOf(s.regsOf(p)) }

func (s *Session) newRegsOf(of regs.Of) *Regs {
	live, err := s.at.t.Regs()
	if err != nil {
		return nil
	}
	r := *live
	r.Rip = s.regs.IP
	return regs.New(r, of)
}

// regsOf is what a handler of a probe sees besides registers.
func (s *Session) regsOf(p *placed) regs.Of {
	m := p.where.Module
	return regs.Of{
		Thread: s.at.t, Memory: p.target.proc, Space: p.target.space,
		PID: s.ctx.PID, TID: s.ctx.TID, CPU: s.ctx.CPU, Comm: s.ctx.Comm, Time: s.now,
		Place: p.where.Addr, Entry: p.where.Offset == 0, Shadow: p.target.shadowStack,
		Go: m != nil && m.File != nil && m.File.IsGo(),
	}
}

// Regs are the registers of a thread that a handler sees, the kernel's struct pt_regs.
type Regs = regs.Regs

// ErrStale is returned by methods of a Regs whose handler has returned.
var ErrStale = regs.ErrStale
