package engine

import (
	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// returnAlone records a return that needs nothing from the entry. The thread is at the return
// instruction; the hit shows the registers after it.
func (s *Engine) returnAlone(p *Placed, ra symbols.Addr) {
	was := s.regs
	s.regs.IP = uint64(ra)
	s.regs.GPR[fetch.SP] += 8
	s.record(p, nil, ra)
	s.regs = was
}

// hitStage takes the hits of a detour that found no room on the stack, and continues the thread at
// the displaced instructions.
func (s *Engine) hitStage(tg *Target, th *thread, st stage) tracee.Verdict {
	regs, err := th.t.Regs()
	if err != nil {
		return tracee.Resume
	}
	if err := s.fill(tg, th); err != nil {
		return tracee.Resume
	}
	if st.JumpsOn() != nil {
		s.followOnward(tg, th, st)
		return sendTo(tg, th.t, regs, st.CopyAt())
	}
	tg.NoRoomHits++
	for _, w := range st.Wants() {
		if w.Kind == planner.LoneExit {
			var word [8]byte
			if _, err := tg.Proc.ReadMemory(word[:], symbols.Addr(regs.Rsp)); err == nil {
				s.returnAlone(PlacedOf(w), symbols.Addr(le64(word[:])))
			}
			continue
		}
		s.regs.IP = uint64(w.P.Where.Addr)
		s.record(PlacedOf(w), nil, 0)
	}
	return sendTo(tg, th.t, regs, st.CopyAt())
}

// sendTo continues a thread at another address.
func sendTo(tg *Target, t *tracee.Thread, regs *unix.PtraceRegs, to symbols.Addr) tracee.Verdict {
	regs.Rip = uint64(to)
	return tg.resumed(t, regs)
}
