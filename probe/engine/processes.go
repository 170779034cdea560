package engine

import (
	"errors"

	"kprobe/internal/procfs"
	"kprobe/probe/survey"
	"kprobe/probe/tracee"
)

// Adopt adds a traced process to the session's targets. ready is the result of Prepare, or nil.
func (s *Engine) Adopt(p *tracee.Process, ready *Prepared) (err error) {
	if ready == nil {
		ready = &Prepared{around: new(survey.Around)}
		ready.space, err = s.files.OpenProcess(p.PID(), p)
	} else {
		ready.mem.hand(p)
		err = ready.space.Refresh()
	}
	if err != nil {
		return err
	}
	tg := &Target{Engine: s, Proc: p, addressSpace: newAddressSpace(ready.space), threads: map[int]*thread{}}
	tg.around, tg.found = ready.around, ready.places
	tg.main, tg.shadowStack = tg, shadowStack(p.PID())
	s.Targets[p.PID()] = tg
	return nil
}

// shadowStack reports whether the program runs with user shadow stacks.
func shadowStack(pid int) bool {
	st, _ := procfs.Process(pid).Status()
	return st.ShadowStack()
}

// LetGo detaches from a process in which kprobe has changed nothing.
func (s *Engine) LetGo(p *tracee.Process) {
	if err := p.Detach(s.Run, nil); err != nil && !errors.Is(err, tracee.ErrGone) {
		s.Logf("detach %d: %v", p.PID(), err)
	}
}
