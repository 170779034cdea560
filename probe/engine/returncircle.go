package engine

import "kprobe/symbols"

// Calls that have the same slot
//
// A call enters a function, and another one is noted with its slot. Either the noted one was abandoned (longjmp, an
// exception), or its function has jumped to another one and still waits for its return. Functions that jump to one
// another in a circle wait several times: each jump is a call, and all of them return together.
//
// What was abandoned is known by these rules (over):
//
//   - a call inside its function has not jumped anywhere
//   - a trapping return trampoline stands in the slot until a call instruction overwrites it
//   - if the return address has a breakpoint, the call instruction before it has one, too, which forgets what was
//     abandoned (leftBehind). So what is still noted waits
//   - if that call instruction is not known, or can't have a breakpoint, a noted call of another function waits. One of the
//     same function may be either: it is missed
//
// A function that jumps to its own entry is in the same call, as long as it is inside.

// forgetOver forgets the calls that are over because p's function is entered by a call c with their key.
func (s *Engine) forgetOver(tg *Target, p *Placed, key callKey, c arriving) {
	unsure := false
	s.done = tg.calls.Leave(key, func(old *Instance) (over bool) {
		over, unsure = s.over(tg, old, p, c)
		return over
	}, s.done)
	for _, old := range s.done {
		if unsure && old.Jumped {
			s.miss(old.Probe)
		}
	}
	s.forget(tg)
}

// forget frees the instances of s.done, whose calls are over.
func (s *Engine) forget(tg *Target) {
	for _, in := range s.done {
		if in.Trampoline >= 0 {
			tg.freeTrampoline(in)
		}
		in.Pool.Put(in)
	}
	s.done = s.done[:0]
}

// over reports whether a noted call is over because p's function is entered by a call c with its key. unsure says that it
// may also wait.
func (s *Engine) over(tg *Target, old *Instance, p *Placed, c arriving) (over, unsure bool) {
	switch {
	case old.Time == s.now && old.TID == s.ctx.TID:
		return false, false // noted in this stop: the same call, or another one that waits with it
	case old.Inside || old.Return != c.ret:
		return true, false
	case p.GoABI:
		return old.Probe == p || !old.Probe.tails, false
	case c.by != nil || old.Trampoline >= 0:
		return old.Trampoline >= 0 && old != c.by, false
	case tg.unpatchable[c.ret]:
		return true, false // else the slot would have its trampoline
	case !old.Probe.tails, old.Probe == p && p.startsOver && !old.Jumped:
		return true, false
	case tg.seesCalls(c.ret):
		return false, false
	}
	return old.Probe == p, old.Probe == p && old.Jumped
}

// seesCalls reports whether a breakpoint is at the call instruction before a return address, where calls that were
// abandoned are forgotten (leftBehind).
func (tg *Target) seesCalls(ra symbols.Addr) bool {
	st := tg.Sites[tg.callers[ra]]
	return st != nil && st.Armed && st.calls
}

// instance takes an instance for a call c of p with a key. If none is free, the call is missed, and it returns nil.
func (s *Engine) instance(tg *Target, th *thread, p *Placed, key callKey, c arriving) *Instance {
	pool := p.instances()
	in := pool.Get()
	if in == nil {
		s.cameBack(tg, p, key)
		in = pool.Get()
	}
	if in == nil {
		tg.reclaim(th, pool)
		in = pool.Get()
	}
	if in == nil {
		s.miss(p)
		return nil
	}
	in.Probe, in.Pop, in.TID, in.TGID, in.Key = p, p.pop(), th.t.TID(), tg.Proc.PID(), key
	in.Slot, in.Return, in.Time = c.slot, c.ret, s.now
	return in
}

// cameBack makes room for a call of p if all of its instances are in use: of the calls with its key that wait, the last
// one is a hit now, if it is only counted. So functions may jump to one another without end.
func (s *Engine) cameBack(tg *Target, p *Placed, key callKey) {
	if !p.Anywhere || p.Limited || p.GoABI {
		return
	}
	var last *Instance
	for in := range tg.calls.With(key) {
		if in.Probe == p && in.Trampoline < 0 {
			last = in
		}
	}
	if last != nil {
		s.record(p, last.Entry, last.Return)
		tg.calls.Drop(last)
	}
}
