//go:build linux && amd64

package tracee

import (
	"sync/atomic"
	"time"
)

// pauses are the times for which processes were stopped as a whole. They are written on the
// tracer's thread and may be read anywhere.
type pauses struct{ longest, sum atomic.Int64 }

func (p *pauses) add(d time.Duration) {
	p.sum.Add(int64(d))
	if int64(d) > p.longest.Load() {
		p.longest.Store(int64(d))
	}
}

// Pauses returns for how long processes were stopped as a whole, by StopAll, WithStopped and
// Detach, since the tracer was made: the longest time, and the sum. A pause lasts from before
// the first thread is asked to stop until the last one runs on. Stops of single threads, at
// breakpoints and for injected calls, don't count. Any goroutine may call it, also after Close.
func (t *Tracer) Pauses() (longest, sum time.Duration) {
	return time.Duration(t.pauses.longest.Load()), time.Duration(t.pauses.sum.Load())
}

// hold begins a pause, or one inside another.
func (p *Process) hold() {
	if p.held == 0 {
		p.since = time.Now()
	}
	p.held++
}
