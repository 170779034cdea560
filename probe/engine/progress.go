package engine

import "time"

// progressEvery is how often Options.Progress is called at most within a step.
const progressEvery = 100 * time.Millisecond

// progress tells Options.Progress that n of a step's all pieces are done. It belongs
// to the tracer's thread.
func (s *Engine) progress(step string, n, all int) {
	if s.Opts.Progress == nil || n&63 != 0 && n != all {
		return
	}
	if now := time.Now(); step != s.step || now.Sub(s.stepAt) >= progressEvery {
		s.step, s.stepAt = step, now
		s.Opts.Progress(step, n, all)
	}
}
