package engine

import "time"

// progressEvery is the least time between two calls of Options.Progress within a step.
const progressEvery = 100 * time.Millisecond

// progress calls Options.Progress: n of all pieces of a step are done. It is used on the tracer's
// thread only.
func (s *Engine) progress(step string, n, all int) {
	if s.Opts.Progress == nil || n&63 != 0 && n != all {
		return
	}
	if now := time.Now(); step != s.step || now.Sub(s.stepAt) >= progressEvery {
		s.step, s.stepAt = step, now
		s.Opts.Progress(step, n, all)
	}
}
