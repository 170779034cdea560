package ring

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClock means that the time stamp counter stands still.
var ErrClock = errors.New("the time stamp counter does not count")

// Record is one hit as it was written, valid until the callback returns.
type Record struct {
	ID   uint32 // of the probe, 1 … Layout.MaxProbes; that it is armed is for the caller to check
	TID  uint32 // as the target's thread control block says
	CPU  int    // whose ring it was in
	TSC  uint64
	Time int64  // CLOCK_MONOTONIC, ns
	Data []byte // argument data, padded to 8 bytes
}

// Options say how a Reader reads. The zero value is the default.
type Options struct {
	// Clock is where time comes from; nil is SystemClock.
	Clock Clock
	// Lateness bounds how long records wait for an older one that is being written; 0 is 10
	// ms. A record that is finished later than that comes out of order. For one that was
	// only reserved the reader waits ten times as long.
	Lateness time.Duration
	// GiveUp is the time after which Abandoned is asked about an unfinished record; 0 is 1
	// s.
	GiveUp time.Duration
	// Abandoned reports whether it is certain that nobody will continue writing a record: its
	// thread has ended, or was stopped, and nothing that a detour of it will go on with
	// leads to the record (Unfinished.Keeps). A wrong yes lets that thread write into the
	// records of others. nil always says no; Finish then cleans up. Until a yes, the room
	// after such a record stays taken, though the records in it are read.
	Abandoned func(Unfinished) bool
	// Busy, if set, returns a time stamp that a writer has noted before it took those of
	// the records that it is about to write; 0 if it writes none. It is for a writer that
	// takes the time long before it reserves room, as the tracer does with what it reads
	// from a stopped thread. Records wait for it for at most five times Lateness. It is
	// called concurrently.
	Busy func() uint64
	// Polled, if set, is called by Run after each look at the rings, by its
	// goroutine.
	Polled func()
	// Given, if set, is called after records were passed to the callback and before they
	// count as given: whoever collects them passes on what there is.
	Given func()
	// Taker, if set, is asked at each look for a taker of the records as they lie in the
	// rings. While it returns nil, they go one by one to the callback, in order of time.
	Taker func() Taker
	// MaxSleep bounds Run's sleep between two looks while records come; 0 is 5 ms.
	MaxSleep time.Duration
}

// ReaderStats are what a Reader has encountered since it was made.
type ReaderStats struct {
	Records   uint64 // given to the callback
	Bytes     uint64 // of ring room freed
	Late      uint64 // given out of order
	Abandoned uint64 // reserved and never finished; the known ones are counted as lost at their probe
	Corrupt   uint64 // times that a ring held what no detour writes, and was emptied
}

// Reader takes records out of the rings in order of time. A file may have only one at a time.
// It is for one goroutine, except Look, LookStale, Given and Settled.
type Reader struct {
	l    *Layout
	m    mem
	opts Options

	// mu guards the lanes' side of the rings, and the tally of what was seen there. It
	// isn't held while records are passed on.
	mu    sync.Mutex
	lanes []lane
	tally tally
	taken bool // what was finished has been taken out since LookStale was called
	more  bool // the last look left records in the rings
	gave  bool // records were given after the last look: queues become shorter
	whole bool // this look's records are handed to a Taker
	brief bool // and the next takes what it leaves, before anybody asks how far it is
	// Of the last LookStale that looked: when it was, by CLOCK_MONOTONIC, and how long it
	// took, in ns.
	staleAt, staleTook int64

	stats ReaderStats

	first Sample
	cal   *Calibration // nil until two samples are far enough apart
	next  int64        // when to sample again, CLOCK_MONOTONIC
	last  uint64       // time stamp of the last record given
	given atomic.Uint64
	// settled is like given, but held back by everything unfinished. floor is what the last
	// look found unfinished.
	settled atomic.Uint64
	floor   uint64
}

// slop is how many ticks a time stamp may lie before the moment at which its record became
// visible as reserved: rdtsc is not ordered after the cmpxchg, and counters of two CPUs differ
// by some ticks.
const slop = 4096

// stuckLateness is how much longer than Lateness all others wait for a record
// whose length isn't stored yet, since what is behind it can't be read.
const stuckLateness = 10

// busyLateness is how much longer than Lateness all others wait for a writer
// that is Busy.
const busyLateness = 5

// NewReader reads the file that is mapped at b, at least up to the Code section. It begins
// where the last reader ended.
func NewReader(b []byte, l *Layout, opts Options) (*Reader, error) {
	m, err := newMem(b, l)
	if err != nil {
		return nil, err
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&opts.Lateness, 10*time.Millisecond)
	def(&opts.GiveUp, time.Second)
	def(&opts.MaxSleep, 5*time.Millisecond)
	if opts.Clock == nil {
		opts.Clock = SystemClock{}
	}
	r := &Reader{l: l, m: m, opts: opts, lanes: make([]lane, l.NumRings()), tally: newTally(m, l)}
	for i := range r.lanes {
		r.lanes[i].init(m, l, i, &r.tally.seen)
	}
	r.first = TakeSample(opts.Clock)
	for i := range r.lanes {
		ln := &r.lanes[i]
		ln.mark(ln.read, r.first.TSC)
	}
	return r, nil
}

// Poll takes what is in the rings, or a part of it if that is much. It passes to emit, in order
// of time, every record that no older one can follow any more. It never waits. An error from
// emit ends it and is returned; that record counts as given. Poll returns the number of records
// passed to emit.
func (r *Reader) Poll(emit func(*Record) error) (int, error) {
	return r.poll(emit, false)
}

// Finish takes and passes on everything there is, finished or not: unfinished records are lost
// and counted so. It is for the end, when no thread of the target can be in a detour any more.
// The error may be ErrClock. It sleeps for MinSpan if the reader is younger than that.
func (r *Reader) Finish(emit func(*Record) error) (int, error) {
	if err := r.Calibrate(); err != nil {
		return 0, err
	}
	return r.poll(emit, true)
}

// Stats returns what the Reader has encountered.
func (r *Reader) Stats() ReaderStats { return r.stats }

// Calibration returns the conversion of time stamps; nil until it is known (MinSpan after
// NewReader).
func (r *Reader) Calibration() *Calibration { return r.cal }

func (r *Reader) poll(emit func(*Record) error, final bool) (given int, err error) {
	now := r.opts.Clock.Mono()
	r.calibrate(now)
	// At the end the rings are emptied in so many looks at most, each of which takes
	// a part or gives one; should somebody still write, the last of them ends it.
	looks := 1
	if final {
		looks = 4 * len(r.lanes) * int(r.l.RingSize/mostTaken+1)
	}
	for parts := 0; ; looks-- {
		taker, err := r.taker(emit)
		if err != nil {
			return given, err
		}
		parts++
		r.brief = taker != nil && !final && parts < mostParts
		start, horizon := r.take(now, final)
		if r.cal == nil && taker == nil {
			return given, nil
		}
		if r.brief && r.more {
			if err := r.hand(taker); err != nil {
				return given, err
			}
			continue
		}
		last := !r.more || looks <= 1
		if horizon -= min(horizon, slop); final && last {
			horizon = ^uint64(0)
		}
		var n int
		if taker != nil {
			if err = r.hand(taker); err == nil {
				err = taker.Until(horizon)
			}
		} else {
			n, err = r.merge(horizon, emit)
		}
		given, r.gave = given+n, n > 0
		r.tally.publishGiven()
		if err == nil {
			r.given.Store(min(horizon, start))
			r.settled.Store(max(min(horizon, start, r.floor), r.settled.Load()))
		}
		if err != nil || last {
			return given, err
		}
	}
}

// take copies out what is in the rings. No record older than horizon can come any more, except
// late ones. start is the moment of the look.
func (r *Reader) take(now int64, final bool) (start, horizon uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.more = false
	// Whatever is reserved after this moment has a later time stamp.
	start = r.opts.Clock.TSC()
	horizon = r.busy(start)
	r.floor = ^uint64(0)
	for i := range r.lanes {
		ln := &r.lanes[i]
		ln.whole = r.whole
		ln.take(now, start, r.gave)
		r.settle(ln, now, start, final)
		for _, h := range ln.holes {
			late := int64(r.opts.Lateness)
			if h.units == 0 {
				late *= stuckLateness // it hides finished records too
			}
			if now-h.since < late {
				horizon = min(horizon, h.floor)
			}
			r.floor = min(r.floor, h.floor)
		}
		if ln.more && r.brief {
			r.more = true // soon there is none
		} else if ln.more {
			r.more = true
			horizon = min(horizon, ln.oldestLeft())
		}
		r.stats.Bytes += ln.publish()
		r.stats.Corrupt += ln.corrupt
		ln.corrupt = 0
	}
	if r.whole {
		r.tally.giveSeen()
	}
	r.tally.publishSeen(r.more)
	r.taken = r.taken || !r.more
	return start, horizon
}

// Look adds the finished records that are in the rings now to ReaderSeen, and so to Hits of
// Counters and of other processes' snapshots. It takes nothing out. It may be called
// concurrently, also from a callback of Poll.
func (r *Reader) Look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
}

// LookStale is Look if nothing has been taken out since its last call. If it is called from
// time to time, the counters are never older than that, even if Poll is held up for long by its
// callback. It takes at most a twentieth of the time: in large rings that are full, a look
// walks through millions of records.
func (r *Reader) LookStale() {
	r.mu.Lock()
	defer r.mu.Unlock()
	begin := r.opts.Clock.Mono()
	if !r.taken && begin-r.staleAt >= 20*r.staleTook {
		r.look()
		r.staleAt = r.opts.Clock.Mono()
		r.staleTook = r.staleAt - begin
	}
	r.taken = false
}

func (r *Reader) look() {
	r.tally.look(func(add func(id uint32)) {
		for i := range r.lanes {
			r.lanes[i].finished(add)
		}
	})
}

// busy returns the time stamp below which a busy writer, asked before the rings are looked at,
// has nothing more to write; start, which is now, if there is none.
func (r *Reader) busy(start uint64) uint64 {
	if r.opts.Busy == nil || r.cal == nil {
		return start
	}
	since := r.opts.Busy()
	if since == 0 || since >= start || r.cal.NS(start)-r.cal.NS(since) >= busyLateness*int64(r.opts.Lateness) {
		return start
	}
	return since
}

// Given returns a time stamp. Every record before it that was finished then has been passed on
// and counted, except late ones. It may be called concurrently.
func (r *Reader) Given() uint64 { return r.given.Load() }

// Settled returns a time stamp. Every record before it that was finished then has been passed
// on and counted, and none that was unfinished then will be given up or come later. An
// unfinished record may hide what lies after it for as long as that takes. So a probe's number
// may be reused once all its records are before Settled. It may be called concurrently.
func (r *Reader) Settled() uint64 { return r.settled.Load() }

// calibrate samples the clocks when it is time to: often at first, when the rate is least well
// known.
func (r *Reader) calibrate(now int64) {
	if now < r.next {
		return
	}
	if r.cal == nil {
		if now-r.first.NS >= MinSpan {
			if r.cal, _ = Calibrate(r.first, TakeSample(r.opts.Clock)); r.cal != nil {
				r.publish()
			}
		}
		return
	}
	if r.given.Load() < r.cal.cur.at.TSC {
		return // records are left whose times the line of before gives
	}
	r.cal.Update(TakeSample(r.opts.Clock))
	r.publish()
	r.next = now + min(max(now-r.first.NS, 10*MinSpan), int64(time.Second))
}
