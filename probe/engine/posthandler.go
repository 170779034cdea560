package engine

import "kprobe/probe/tracee"

// How post handlers are called
//
// A thread that hits a probe with a PostHandler does not run through the copy of the instruction. It
// is stepped until it has left the copy. Then its registers are those of the program directly after
// the instruction, wherever that led. What may happen before that:
//
//	a fault    the instruction had no effect, and no post handler is called. If the program
//	           repairs the cause and executes the instruction again, this is the same hit
//	a signal   the signal is held until the thread has left the copy and the handlers were
//	           called (tracee)
//	a string   a repeating instruction takes several steps: the handlers are called after the last
//	removal    if the probe is removed or switched off, its handler isn't called

// due lists the probes of a site whose post handlers must be called for the hit that was just taken.
func (s *Engine) due(st *Site) (list []*Placed) {
	for _, p := range st.probes {
		if p.user() != nil && p.user().Post != nil && s.takes(p) {
			list = append(list, p)
		}
	}
	return list
}

// postHandlers calls the post handlers of the probes in due, in order of registration. The thread has
// left the copy of the instruction.
func (s *Engine) postHandlers(tg *Target, th *thread, due []*Placed) {
	if err := s.fill(tg, th); err != nil {
		return // gone
	}
	for _, p := range due {
		if !s.takes(p) {
			continue
		}
		of := s.regsOf(p)
		of.Entry = false
		r := s.newRegsOf(of)
		if r == nil {
			return // gone
		}
		if !s.callHandler(p, "PostHandler", r, func() { p.user().Post(r) }) {
			continue
		}
		s.apply(r)
		if at := uint64(r.IP()); at != s.regs.IP {
			s.jump(r)
			s.regs.IP = at
		}
	}
}

// left ends the stepping of a thread that has left a copy.
func (s *Engine) left(tg *Target, t *tracee.Thread) tracee.Verdict {
	th := tg.thread(t)
	due := th.post
	th.post = nil
	if len(due) > 0 {
		s.postHandlers(tg, th, due)
	}
	return tracee.Resume
}
