package cli

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/output"
	"kprobe/probe"
)

// latestIn is when -t begins to count at the latest, though nothing has said that
// the probes of a started command are in.
const latestIn = time.Minute

// timed returns a context that ends -t after the probes are in: at once in a process
// that was running before, else when in is closed. Looking up and putting in probes
// is no part of the time.
func (o *sessionOptions) timed(ctx context.Context, in <-chan struct{}) (context.Context, context.CancelFunc) {
	if len(o.command) == 0 {
		return context.WithTimeout(ctx, o.lasts())
	}
	run, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		late := time.NewTimer(latestIn)
		defer late.Stop()
		select {
		case <-in:
		case <-late.C:
		case <-run.Done():
			return
		}
		over := time.NewTimer(o.lasts())
		defer over.Stop()
		select {
		case <-over.C:
		case <-run.Done():
		}
	}()
	return run, cancel
}

// expires reports whether --expire ends the trace, rather than -t.
func (o *sessionOptions) expires() bool {
	return o.expire > 0 && (o.duration == 0 || o.expire < o.duration)
}

// endLine is the message at the end of a trace.
func (o *sessionOptions) endLine(events uint64, sum *probe.Summary) string {
	if o.wait && !sum.Reached {
		return output.CountsLine(events, sum.Stats) + "; no process came to be probed"
	}
	s := output.EndLine(events, sum.Stats, sum.Alive, sum.Killed)
	if o.expired {
		s += fmt.Sprintf("; the probes have switched themselves off after %v, as --expire says", o.expire)
	}
	return s
}

// lasts is how long the trace goes on once the probes are in; 0: until something else
// ends it. Probes that have switched themselves off have no more hits.
func (o *sessionOptions) lasts() time.Duration {
	if o.expires() {
		return o.expire
	}
	return o.duration
}

// endTime is when a trace was told to end, CLOCK_MONOTONIC in ns; 0: it wasn't. From then
// on probes are taken out one after the other, and a call may have hits of some only.
type endTime struct{ at atomic.Uint64 }

func (e *endTime) note() {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		e.at.Store(uint64(now.Nano()))
	}
}

// before reports whether a hit's time is behind it.
func (e *endTime) before(t uint64) bool {
	at := e.at.Load()
	return at != 0 && at < t
}
