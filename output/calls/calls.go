// Package calls turns hits into function calls: caller, callee, start and end.
package calls

import (
	"cmp"
	"slices"

	"kprobe/output/recording"
)

// End says how a call ended.
type End uint8

// The ends of calls.
const (
	Returned End = iota
	// Left calls ended and nobody saw a return: by an exception or longjmp, or the
	// hit of the return was lost or missed.
	Left
	// Open calls have not returned when the hits end.
	Open
)

// Call is a call of a function.
type Call struct {
	Func   *recording.Place
	Thread *recording.Thread
	Parent *Call // nil: a root
	Depth  int   // of roots 0
	CPU    int
	G      uint64 // the goroutine, of Go's code; Thread is then one that it ran on
	Entry  uint64 // ns
	Leave  uint64 // ns; of Left calls when that was seen; 0: it hasn't ended
	End    End
	// Late says that the entry was not seen when it was, but told by the return: its
	// hit was lost, or there is no probe.
	Late bool
	// Below is how long the calls took that it made, of those that were seen.
	Below uint64
	// Calls is how many it made itself.
	Calls int
	// In and Out are what Tracker.Note gave of the hits at the entry and the return.
	In, Out any

	sp   uint64
	over bool // its return was seen, at Leave; it is told of after the calls within it (together.go)
	run  int  // how many calls of the same function with the same stack it is directly within
}

// Track is what calls nest on: a thread, or a goroutine, which goes from thread to
// thread.
type Track struct {
	PID, TID int // TID is 0 of goroutines
	G        uint64
}

func trackOf(t *recording.Thread, g uint64) Track {
	if g != 0 {
		return Track{PID: t.PID, G: g}
	}
	return Track{PID: t.PID, TID: t.TID}
}

// Track is the call's.
func (c *Call) Track() Track { return trackOf(c.Thread, c.G) }

// Time is how long the call took, or has taken until now.
func (c *Call) Time(now uint64) uint64 {
	end := c.Leave
	if end == 0 {
		end = now
	}
	return end - min(c.Entry, end)
}

// Self is Time less that of the calls that it made.
func (c *Call) Self(now uint64) uint64 {
	t := c.Time(now)
	return t - min(t, c.Below)
}

// Sink takes calls. Of a thread they come nested, in order of time; Enter has what is
// known of a call when it begins, Leave all. A Call is the sink's to keep.
type Sink interface {
	Enter(c *Call) error
	Leave(c *Call) error
}

// maxDepth bounds how deep calls are followed: deeper than return probes can. maxHeld bounds how many
// calls of all threads wait for one that they are in.
const (
	maxDepth = 1 << 17
	maxHeld  = 1 << 19
	// oneStack is how far apart two addresses of one stack are at most; what is
	// farther is another stack, as of a signal's handler.
	oneStack = 64 << 20
)

// Tracker makes calls of hits, given in order of time. Where functions have probes at
// their entry and their return, calls are told to the sink as they come. Where there
// are only returns they are when Finish is called: a call's caller returns after it.
type Tracker struct {
	Sink Sink
	// Note, if set, keeps what is wanted of a hit, which is gone afterwards.
	Note func(h *recording.Hit) any

	Hits  uint64 // that were calls' entries or returns
	Calls uint64 // that the sink was told of
	Alone bool   // the last hit is the return of a call of which nothing else is known
	Lates uint64 // calls whose entry was not seen, of functions with a probe there
	Cut   uint64 // calls that may lack a caller: too many waited for theirs

	// paired are addresses of functions whose entries are seen without a stack pointer, and
	// whose returns are seen, too.
	paired map[uint64]bool
	// circles are addresses of functions that call themselves by jumps of others.
	circles map[uint64]bool
	threads map[Track]*thread
	order   []*thread
	track   Track // of the last hit
	latest  *thread
	entries bool // entries are seen
	held    int
	last    uint64
}

type thread struct {
	open   []*Call // outermost first
	over   int     // the number, from 1, of the outermost that is over; 0: none is
	held   []*Call // that are over, in order of their returns
	lapsed []lapse // that were told to have been left, the latest last
}

// Hit takes a hit. Those that are neither a function's entry nor a return are left
// out.
func (t *Tracker) Hit(h *recording.Hit) error {
	t.last, t.Alone = max(t.last, h.Time), false
	if !t.IsCall(h) {
		return nil
	}
	th := t.latest
	if key := trackOf(h.Thread, h.G); th == nil || key != t.track {
		if th = t.threads[key]; th == nil {
			if t.threads == nil {
				t.threads = map[Track]*thread{}
			}
			th = &thread{}
			t.threads[key] = th
			t.order = append(t.order, th)
		}
		t.track, t.latest = key, th
	}
	t.Hits++
	if !h.Event.Return {
		t.entries = true
		return t.enter(th, h)
	}
	return t.leave(th, h)
}

// Pair has entries of functions at these addresses be calls.
func (t *Tracker) Pair(at []uint64) {
	t.paired = map[uint64]bool{}
	for _, a := range at {
		t.paired[a] = true
	}
}

// IsCall reports whether a hit is of a call: a function's entry whose return is seen, too,
// or a return.
func (t *Tracker) IsCall(h *recording.Hit) bool {
	return h.Event.Return || h.SP != 0 || h.Event.Entry && t.paired[h.Place.Addr]
}

// Now is the time of the last hit.
func (t *Tracker) Now() uint64 { return t.last }

func (t *Tracker) note(h *recording.Hit) any {
	if t.Note == nil {
		return nil
	}
	return t.Note(h)
}

func (t *Tracker) enter(th *thread, h *recording.Hit) error {
	if err := t.endOver(th); err != nil {
		return err
	}
	n, again := t.outside(th, h.Place.Addr, h.SP)
	th.lapse(th.open[n:], again)
	if err := t.drop(th, n, h.Time); err != nil {
		return err
	}
	c := &Call{Func: h.Place, Thread: h.Thread, CPU: h.CPU, G: h.G, Entry: h.Time, sp: h.SP, In: t.note(h)}
	if h.G != 0 {
		c.sp = 0 // a goroutine's stack is copied to another place as it grows
	}
	if len(th.open) >= maxDepth {
		if err := t.drop(th, 0, h.Time); err != nil {
			return err
		}
	}
	if n := len(th.open); n > 0 && c.sp != 0 && th.open[n-1].sp == c.sp && th.open[n-1].Func.Addr == c.Func.Addr {
		c.run = th.open[n-1].run + 1
	}
	t.under(th, c)
	th.open = append(th.open, c)
	return t.tell(c)
}

// tell tells the sink of a call.
func (t *Tracker) tell(c *Call) error {
	t.Calls++
	return t.Sink.Enter(c)
}

// under makes a call one of the innermost that is open.
func (t *Tracker) under(th *thread, c *Call) {
	if n := len(th.open); n > 0 {
		c.Parent, c.Depth = th.open[n-1], n
		c.Parent.Calls++
	}
}

// drop ends the calls from number n on, which nobody has seen return.
func (t *Tracker) drop(th *thread, n int, now uint64) error {
	for len(th.open) > n {
		c := th.open[len(th.open)-1]
		c.End = Left
		if err := t.end(th, c, now); err != nil {
			return err
		}
	}
	return nil
}

// end ends the innermost call.
func (t *Tracker) end(th *thread, c *Call, now uint64) error {
	th.open = th.open[:len(th.open)-1]
	c.Leave = now
	if c.Parent != nil {
		c.Parent.Below += c.Time(now)
	}
	return t.Sink.Leave(c)
}

func (t *Tracker) leave(th *thread, h *recording.Hit) error {
	best, off := -1, ^uint64(0)
	for i := len(th.open) - 1; i >= 0; i-- {
		c := th.open[i]
		d, same := max(c.Entry, h.Entry)-min(c.Entry, h.Entry), c.Func.Addr == h.Place.Addr && !c.over
		if same && h.Entry == 0 {
			best = i // nothing says which one
			break
		}
		if same && d < off {
			best, off = i, d
		}
		if c.Entry <= h.Entry && d >= off {
			break // those further out were entered earlier
		}
	}
	if h.Entry != 0 {
		if l := th.returned(h.Place.Addr, h.Entry, off); l.call != nil {
			return t.wasNotLeft(l, h)
		}
	}
	if th.over > 0 && best < th.over {
		if err := t.endOver(th); err != nil {
			return err
		}
		return t.leave(th, h)
	}
	if best >= 0 {
		c := th.open[best]
		c.CPU, c.Out = h.CPU, t.note(h)
		if th.together(best) {
			c.over, c.Leave = true, h.Time
			if th.over == 0 {
				th.over = best + 1
			}
			return nil
		}
		if err := t.drop(th, best+1, h.Time); err != nil {
			return err
		}
		if err := t.end(th, c, h.Time); err != nil {
			return err
		}
		return t.endTogether(th)
	}
	if h.Entry == 0 {
		t.Alone = true
		return nil
	}
	c := &Call{Func: h.Place, Thread: h.Thread, CPU: h.CPU, G: h.G, Entry: h.Entry, Leave: h.Time, Late: true, Out: t.note(h)}
	if !t.entries {
		th.held = append(th.held, c)
		if t.held++; t.held < maxHeld {
			return nil
		}
		return t.release(true)
	}
	t.Lates++
	// Those that were entered later were within it, and are over.
	n := len(th.open)
	for n > 0 && th.open[n-1].Entry > h.Entry {
		n--
	}
	if err := t.drop(th, n, h.Time); err != nil {
		return err
	}
	t.under(th, c)
	th.open = append(th.open, c)
	if err := t.tell(c); err != nil {
		return err
	}
	return t.end(th, c, h.Time)
}

// release tells the sink of the calls that wait; early says that their callers may be to
// come.
func (t *Tracker) release(early bool) error {
	for _, th := range t.order {
		roots, err := t.nest(th)
		if err != nil {
			return err
		}
		if early {
			t.Cut += roots
		}
	}
	t.held = 0
	return nil
}

// nest tells of a thread's calls that are over, by which lies in which. roots are those
// that lie in none.
func (t *Tracker) nest(th *thread) (roots uint64, err error) {
	list := th.held
	th.held = nil
	slices.SortStableFunc(list, func(a, b *Call) int {
		return cmp.Or(cmp.Compare(a.Entry, b.Entry), cmp.Compare(b.Leave, a.Leave))
	})
	for _, c := range list {
		for n := len(th.open); n > 0 && th.open[n-1].Leave < c.Leave; n-- {
			if err := t.end(th, th.open[n-1], th.open[n-1].Leave); err != nil {
				return roots, err
			}
		}
		if t.under(th, c); c.Parent == nil {
			roots++
		}
		th.open = append(th.open, c)
		if err := t.tell(c); err != nil {
			return roots, err
		}
	}
	for n := len(th.open); n > 0; n-- {
		if err := t.end(th, th.open[n-1], th.open[n-1].Leave); err != nil {
			return roots, err
		}
	}
	return roots, nil
}

// Finish tells of what is left: calls that wait, and those that haven't returned.
func (t *Tracker) Finish() error {
	if !t.entries {
		return t.release(false)
	}
	for _, th := range t.order {
		if err := t.endOver(th); err != nil {
			return err
		}
		if len(th.held) > 0 { // of before the first entry was seen
			open := th.open
			th.open = nil
			if _, err := t.nest(th); err != nil {
				return err
			}
			th.open = open
		}
		for n := len(th.open); n > 0; n-- {
			c := th.open[n-1]
			th.open = th.open[:n-1]
			c.End = Open
			if c.Parent != nil {
				c.Parent.Below += c.Time(t.last)
			}
			if err := t.Sink.Leave(c); err != nil {
				return err
			}
		}
	}
	return nil
}
