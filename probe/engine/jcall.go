package engine

import (
	"runtime/debug"

	"kprobe/probe/regs"
	"kprobe/probe/results"
)

// bindEntry makes the call of a jprobe's function, which runs with the thread stopped, with the
// arguments at the thread's entry. ok is false if an argument can't be read.
func (s *Engine) bindEntry(p *Placed, r *regs.Regs) (run func() (skip bool), ok bool) {
	s.ctx.Entry = nil
	rec, _ := p.Program.Eval(&s.ctx, s.rec[:0])
	s.rec = rec[:0]
	vals, err := p.Program.Decode(rec, nil)
	if err != nil {
		return nil, false
	}
	return p.user().Call.Bind(r, vals)
}

// deliver calls the function of a jprobe for a recorded hit. It runs in the sink's turn. The error says
// if the record can't be decoded or the function panicked.
func (p *Placed) deliver(h *results.Hit) (err error) {
	if p.user().Gone.Load() {
		p.Ev.counts.Lost.Add(1)
		return nil
	}
	vals, err := p.Program.Decode(h.Data, nil)
	if err != nil {
		p.Ev.counts.Lost.Add(1)
		return err
	}
	run, ok := p.user().Call.Bind(h, vals)
	if !ok {
		p.Ev.counts.Lost.Add(1)
		return nil
	}
	p.Ev.counts.Recorded.Add(1)
	defer func() {
		if v := recover(); v != nil {
			p.Ev.turn(false)
			err = p.user().Failed("Entry", v, debug.Stack())
		}
	}()
	run()
	return nil
}
