package calls

import "kprobe/output/recording"

// Calls that seemed to be left
//
// A function is entered where a call that is open has its stack: that call was left, or it has jumped on
// (a tail call), or the thread is on another stack now (a coroutine). The hits don't say which. The
// sink is told that it was left if the function is the same, or if calls are open that lie deeper. When
// its return comes nevertheless, it was not: the sink is told that, and the return makes no further call.
// From then on calls of that function nest when they have the same stack.

// Returner is a Sink that wants to know when a call that it was told was left has returned.
type Returner interface {
	// Returned has the call as it is: Leave was at until now. again says that a call of
	// the same function took its place, so that the time from there on was told already.
	Returned(c *Call, at uint64, again bool) error
}

// lapse is a call that the sink was told was left.
type lapse struct {
	call  *Call
	again bool // a call of the same function took its place
}

// maxLapsed bounds how many calls of a thread are remembered as left, and maxRun how many calls of a
// function nest with one stack.
const (
	maxLapsed = 256
	maxRun    = 16
)

// outside is how many of the open calls a call of the function at addr is within. A call's stack lies
// below its caller's: who isn't above has been left. again says that those that it isn't within have
// the same stack and the same function.
func (t *Tracker) outside(th *thread, addr, sp uint64) (n int, again bool) {
	deeper := false
	for n = len(th.open); n > 0; n-- {
		top := th.open[n-1]
		if top.sp == 0 || top.sp > sp || sp-top.sp > oneStack {
			return n, false
		}
		if top.sp == sp && !deeper {
			if top.Func.Addr != addr || t.circles[addr] && top.run < maxRun {
				return n, false
			}
			delete(t.circles, addr) // they may have been left, after all
			return n - 1 - top.run, true
		}
		deeper = true
	}
	return n, false
}

// lapse notes calls that are about to be told to have been left.
func (th *thread) lapse(list []*Call, again bool) {
	for _, c := range list {
		if len(th.lapsed) >= maxLapsed {
			th.lapsed = append(th.lapsed[:0], th.lapsed[maxLapsed/2:]...)
		}
		th.lapsed = append(th.lapsed, lapse{c, again})
	}
}

// returned finds the call that was taken for left and returns now: that whose entry is nearest to the
// one that the return tells, nearer than off. If the call had not even run that long when it was taken
// for left, the return is that of another call, whose entry was lost.
func (th *thread) returned(addr, entry, off uint64) (found lapse) {
	at := -1
	for i := len(th.lapsed) - 1; i >= 0 && off > 0; i-- {
		c := th.lapsed[i].call
		if c.Func.Addr != addr {
			continue
		}
		if d := max(c.Entry, entry) - min(c.Entry, entry); d < off && d <= c.Leave-c.Entry {
			at, off = i, d
		}
	}
	if at >= 0 {
		found = th.lapsed[at]
		th.lapsed = append(th.lapsed[:at], th.lapsed[at+1:]...)
	}
	return found
}

// wasNotLeft takes the return of a call that was taken for left.
func (t *Tracker) wasNotLeft(l lapse, h *recording.Hit) error {
	if l.again {
		if t.circles == nil {
			t.circles = map[uint64]bool{}
		}
		t.circles[h.Place.Addr] = true
	}
	c, at := l.call, l.call.Leave
	c.CPU, c.Leave, c.End, c.Out = h.CPU, h.Time, Returned, t.note(h)
	if sink, ok := t.Sink.(Returner); ok {
		return sink.Returned(c, at, l.again)
	}
	return nil
}
