package ring

import "time"

// A ring is full when hits come faster than they are read. One of a breakpoint may
// wait a moment for room, where the reader is about to make some; not longer, as
// with it waits its thread, and every other thread that stops: a reader that is
// kept by a pager, or a terminal on which somebody has pressed ^S, must not hold
// the program up. What finds no room is counted as lost.

const (
	// maxPatience is for how long a burst may be waited for.
	maxPatience = 20 * time.Millisecond
	// patienceShare is what part of all time may go into waiting, as a divisor.
	patienceShare = 50
	// patienceStep is how long is waited before it is looked again.
	patienceStep = 200 * time.Microsecond
)

// Patience is what is left of the time for waiting. The zero value is all of it.
type Patience struct {
	spent time.Duration
	at    time.Time // when that was brought up to date
	// stuck says that the last wait was in vain, with the ring read up to there.
	stuck bool
	taken uint64
	sleep func(time.Duration) // time.Sleep, if nil
}

// Wait waits for room in a ring that is read up to taken, or says that it isn't to
// be waited for any more.
func (p *Patience) Wait(now time.Time, taken uint64) bool {
	if !p.at.IsZero() {
		p.spent = max(p.spent-now.Sub(p.at)/patienceShare, 0)
	}
	p.at = now
	if p.stuck && p.taken == taken {
		return false
	}
	if p.spent+patienceStep > maxPatience {
		p.stuck, p.taken = true, taken
		return false
	}
	p.stuck = false
	p.spent += patienceStep
	if p.sleep != nil {
		p.sleep(patienceStep)
	} else {
		time.Sleep(patienceStep)
	}
	return true
}
