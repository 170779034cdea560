package html

import (
	"cmp"
	"slices"

	"kprobe/output/calls"
	"kprobe/output/recording"
	"kprobe/output/report"
)

// The bounds of the timeline.
const (
	maxBars   = 40000 // of all tracks
	maxPer    = 2000  // of a track
	minPer    = 40
	maxTracks = 1 << 12 // that are looked at
	maxShown  = 200     // that are drawn
)

// Collector is the calls.Sink that keeps what timeline and heat map need: the longest
// calls of each thread or goroutine, and how many took how long when.
type Collector struct {
	Report *report.Report
	// Also gets the calls too; nil is none.
	Also calls.Sink

	tracks map[calls.Track]*track
	order  []*track
	funcs  names
	places map[*recording.Place]int
	heat   heat
	tooFew uint64 // calls of tracks beyond maxTracks
}

// track is a thread or goroutine.
type track struct {
	key   calls.Track
	name  string
	calls uint64
	total uint64 // ns, of calls that nobody called
	bars  []bar
	floor uint64 // what is shorter isn't among the longest
}

// bar is a call.
type bar struct {
	from, to uint64
	depth    int32
	fn       int32
	end      calls.End
}

func (b *bar) time() uint64 { return b.to - b.from }

// thread is a track as the page gets it: bars are barNumbers each, the first is the
// distance from where the one before it begins.
type thread struct {
	Name  string  `json:"name"`
	Calls uint64  `json:"calls"`
	Depth int32   `json:"depth"`
	Bars  []int64 `json:"bars"`
}

// Enter implements calls.Sink.
func (c *Collector) Enter(k *calls.Call) error {
	if c.Also != nil {
		return c.Also.Enter(k)
	}
	return nil
}

// Leave implements calls.Sink.
func (c *Collector) Leave(k *calls.Call) error {
	end := k.Leave
	if end == 0 {
		end = max(c.Report.Tracks.Now(), k.Entry)
	}
	b := bar{from: min(k.Entry, end), to: end, depth: int32(k.Depth), fn: int32(c.function(k.Func)), end: k.End}
	if k.End != calls.Open {
		c.heat.add(b.to-min(c.Report.First, b.to), b.time(), uint32(b.fn))
	}
	if t := c.track(k); t != nil {
		t.calls++
		if k.Parent == nil {
			t.total += b.time()
		}
		if b.time() >= t.floor {
			t.bars = append(t.bars, b)
			if most := c.per(len(c.order)); len(t.bars) >= 2*most {
				t.trim(most)
			}
		}
	} else {
		c.tooFew++
	}
	if c.Also != nil {
		return c.Also.Leave(k)
	}
	return nil
}

// per is how many bars each of so many tracks has.
func (c *Collector) per(tracks int) int {
	return min(max(maxBars/max(tracks, 1), minPer), maxPer)
}

// trim keeps the longest calls: of those that took as long, the callers.
func (t *track) trim(most int) {
	if len(t.bars) <= most {
		return
	}
	slices.SortStableFunc(t.bars, func(a, b bar) int {
		return cmp.Or(cmp.Compare(b.time(), a.time()), cmp.Compare(a.depth, b.depth))
	})
	t.bars = slices.Clone(t.bars[:most])
	t.floor = t.bars[most-1].time()
}

func (c *Collector) track(k *calls.Call) *track {
	key := k.Track()
	t := c.tracks[key]
	if t == nil {
		if len(c.order) >= maxTracks {
			return nil
		}
		if c.tracks == nil {
			c.tracks = map[calls.Track]*track{}
		}
		t = &track{key: key, name: report.TrackName(k)}
		c.tracks[key] = t
		c.order = append(c.order, t)
		if n := len(c.order); n&(n-1) == 0 {
			for _, o := range c.order {
				o.trim(c.per(n))
			}
		}
	}
	return t
}

// function numbers functions by their names.
func (c *Collector) function(p *recording.Place) int {
	if i, ok := c.places[p]; ok {
		return i
	}
	const most = 1 << 16
	if c.places == nil || len(c.places) >= most { // places are defined anew now and then
		c.places = map[*recording.Place]int{}
	}
	name := report.FrameName(p)
	if len(c.funcs.list) >= most {
		name = report.Others
	}
	i := c.funcs.number(name)
	c.places[p] = i
	return i
}

// timeline gives the tracks with the most time, and from when to when their bars are.
func (c *Collector) timeline(all *names, note func(string, ...any)) (out []thread, span [2]int64) {
	out = []thread{}
	shown := slices.Clone(c.order)
	slices.SortStableFunc(shown, func(a, b *track) int { return cmp.Compare(b.total, a.total) })
	if n := uint64(len(shown)); n > maxShown {
		more := ""
		if c.tooFew > 0 {
			more = "more than "
		}
		note("Timeline: of %s%s threads and goroutines the %d with the most time in calls are drawn.", more, grouped(n), maxShown)
		shown = shown[:maxShown]
	}
	slices.SortStableFunc(shown, func(a, b *track) int {
		return cmp.Or(cmp.Compare(a.key.PID, b.key.PID), cmp.Compare(a.key.TID, b.key.TID), cmp.Compare(a.key.G, b.key.G))
	})
	first := c.Report.First
	for _, t := range shown {
		for _, b := range t.bars {
			first = min(first, b.from)
		}
	}
	span = [2]int64{0, int64(c.Report.Last - min(first, c.Report.Last))}
	most, gone := c.per(len(shown)), uint64(0)
	for _, t := range shown {
		t.trim(most)
		gone += t.calls - uint64(len(t.bars))
		slices.SortStableFunc(t.bars, func(a, b bar) int {
			return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.depth, b.depth))
		})
		o := thread{Name: quotePlain(t.name), Calls: t.calls, Bars: []int64{}}
		last := first
		for _, b := range t.bars {
			o.Depth = max(o.Depth, b.depth+1)
			o.Bars = append(o.Bars, int64(b.from-last), int64(b.time()), int64(b.depth), int64(all.number(c.funcs.text(int(b.fn)))), int64(b.end))
			last = b.from
		}
		out = append(out, o)
	}
	if gone > 0 {
		note("Timeline: of each thread the %s longest calls are drawn at most; %s shorter ones aren't.", grouped(uint64(most)), grouped(gone))
	}
	return out, span
}
