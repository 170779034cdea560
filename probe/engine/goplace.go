package engine

import (
	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/gocode"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// goStack says how the detour of a probe in Go code gets its stack, or why it
// can have none.
func (o *planner) goStack(f *assess.Function, w PatchRequest) (gocode.Stack, string) {
	return f.GoCode(o.ground.golang.Of(w.Site.Module.File)).Stack(uint64(w.Site.Addr - f.Start))
}

// goParams are the parameters of the detour of a probe: in Go code those of its
// small stacks.
func (o *planner) goParams(w PatchRequest) detour.Params {
	p := o.params
	switch w.stack.Room {
	case gocode.Look:
		p.NoRedZone = !w.stack.RedZone
		p.Look = &detour.Look{Free: uint16(w.stack.Free), Flags: w.stack.Flags, TLS: w.stack.TLS}
		p.MaxStack = gocode.StackBytes
	case gocode.Checked:
		p.MaxStack = gocode.StackBytes
	}
	return p
}

// returnAlone records a return of which nothing is kept from the entry. The
// thread stands at the return; the hit has the registers of behind it.
func (s *Engine) returnAlone(p *Placed, ra symbols.Addr) {
	was := s.regs
	s.regs.IP = uint64(ra)
	s.regs.GPR[fetch.SP] += 8
	s.record(p, nil, ra)
	s.regs = was
}

// hitStage records the hits of a detour that had no room on the stack, and
// sends the thread on to the displaced instructions.
func (s *Engine) hitStage(tg *Target, th *thread, st *stage) tracee.Verdict {
	regs, err := th.t.Regs()
	if err != nil {
		return tracee.Resume
	}
	if err := s.fill(tg, th); err != nil {
		return tracee.Resume
	}
	if st.jumpsOn() != nil {
		s.followOnward(tg, th, st)
		return sendTo(tg, th.t, regs, st.CopyAt)
	}
	tg.NoRoomHits++
	for _, w := range st.wants {
		if w.Kind == requestExit {
			var word [8]byte
			if _, err := tg.Proc.ReadMemory(word[:], symbols.Addr(regs.Rsp)); err == nil {
				s.returnAlone(w.P, symbols.Addr(le64(word[:])))
			}
			continue
		}
		s.regs.IP = uint64(w.P.Where.Addr)
		s.record(w.P, nil, 0)
	}
	return sendTo(tg, th.t, regs, st.CopyAt)
}

// sendTo lets a thread go on elsewhere.
func sendTo(tg *Target, t *tracee.Thread, regs *unix.PtraceRegs, to symbols.Addr) tracee.Verdict {
	regs.Rip = uint64(to)
	return tg.resumed(t, regs)
}
