package probe

import "runtime/debug"

// bindEntry decodes the arguments of a jprobe whose function runs with the thread
// stopped; ok is false where one can't be read.
func (s *engine) bindEntry(p *placed, r *Regs) (run func() (skip bool), ok bool) {
	s.ctx.Entry = nil
	rec, _ := p.prog.Eval(&s.ctx, s.rec[:0])
	s.rec = rec[:0]
	vals, err := p.prog.Decode(rec, nil)
	if err != nil {
		return nil, false
	}
	return p.user.call.Bind(r, vals)
}

// deliver calls the function of a jprobe with a hit that was recorded. The
// error is that of a function that panicked. s.sinkMu is held.
func (p *placed) deliver(h *Hit) (err error) {
	if p.user.gone.Load() {
		p.ev.lost.Add(1)
		return nil
	}
	vals, err := p.prog.Decode(h.Data, nil)
	if err != nil {
		p.ev.lost.Add(1)
		return err
	}
	run, ok := p.user.call.Bind(h, vals)
	if !ok {
		p.ev.lost.Add(1)
		return nil
	}
	p.ev.recorded.Add(1)
	defer func() {
		if v := recover(); v != nil {
			p.ev.turn(false)
			err = p.user.failed("Entry", v, debug.Stack())
		}
	}()
	run()
	return nil
}
