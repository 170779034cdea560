package ring

import "time"

// A ring is full when hits come faster than they are read. The hit of a breakpoint may wait a
// moment for room if the reader is about to make some. It may not wait longer, because its
// thread waits too, and so does every other thread that stops. A reader that is held up by a
// pager, or by a terminal on which somebody has pressed ^S, must not hold up the program. A hit
// that finds no room is counted as lost.

const (
	// maxPatience is for how long a burst may be waited for.
	maxPatience = 20 * time.Millisecond
	// patienceShare is the part of all time that may be spent waiting, as a divisor.
	patienceShare = 50
	// patienceStep is how long to wait before looking again.
	patienceStep = 200 * time.Microsecond
)

// Patience is the time that may still be spent waiting. The zero value is all of it.
type Patience struct {
	spent time.Duration
	at    time.Time // when that was brought up to date
	// stuck says that the last wait was in vain, with the ring read up to that position.
	stuck bool
	taken uint64
	sleep func(time.Duration) // time.Sleep, if nil
}

// Wait waits for room in a ring that is read up to taken. It returns false if waiting is no
// longer allowed.
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
