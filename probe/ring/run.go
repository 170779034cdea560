package ring

import (
	"context"
	"time"
)

// Run polls until ctx ends or emit fails, and returns the cause. If a look has left nothing, it
// then sleeps as long as the rings have room for at the last seen rate, at most
// Options.MaxSleep; three and then six times that if nothing has come for a while. Finish takes
// what is left in the rings.
func (r *Reader) Run(ctx context.Context, emit func(*Record) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	p := pace{room: uint64(r.l.RingSize), longest: r.opts.MaxSleep}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		freed := r.stats.Bytes
		if _, err := r.Poll(emit); err != nil {
			return err
		}
		if r.opts.Polled != nil {
			r.opts.Polled()
		}
		sleep := p.next(r.stats.Bytes-freed, time.Duration(r.opts.Clock.Mono()))
		if r.more {
			sleep = 0
		}
		timer.Reset(sleep)
	}
}

// pace chooses the sleep between two looks.
type pace struct {
	room    uint64 // bytes of one ring
	longest time.Duration
	last    time.Duration // when the last look ended
	idle    int           // looks in a row that found nothing
}

// shortest is the time below which a sleeping thread can't be woken.
const shortest = 50 * time.Microsecond

// idleLooks is how many looks must find nothing before the sleep is stretched: a look every 5
// ms costs over 1 % of a core. Even the longest sleep leaves a ring of 2 MiB room for 1.7
// million small records a second.
const idleLooks = 40

// next is how long to sleep after a look that freed bytes and ended at now. It
// aims at rings that are an eighth full, as if all came from one CPU.
func (p *pace) next(bytes uint64, now time.Duration) time.Duration {
	took := now - p.last
	p.last = now
	target := p.room / 8
	if bytes == 0 {
		p.idle++
		switch {
		case p.idle > 2*idleLooks:
			return 6 * p.longest
		case p.idle > idleLooks:
			return 3 * p.longest
		}
		return p.longest
	}
	p.idle = 0
	if bytes >= 2*target {
		return 0 // behind
	}
	return min(p.longest, max(shortest, time.Duration(uint64(max(took, 1))*target/bytes)))
}
