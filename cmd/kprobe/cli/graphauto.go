package cli

import (
	"context"
	"errors"
	"io"
	"maps"
	"time"

	"kprobe/output/recording"
	"kprobe/probe"
)

// What --auto leaves out: functions that make up more than half of the hits between two
// looks, or of a recording, where there are many.
const (
	autoInterval = 200 * time.Millisecond
	autoLeast    = 20000 // hits
)

// busiest finds functions that make up most of the hits.
type busiest struct {
	before map[[2]string]uint64
	out    map[[2]string]bool
}

// share is a function's part of the hits.
type share struct {
	function, module string
	percent          int
}

// live looks at the counters of places, and finds what to leave out since the last look.
func (b *busiest) live(places []probe.Stats) []share {
	now := map[[2]string]uint64{}
	for i := range places {
		now[[2]string{places[i].Place, places[i].Module}] += places[i].Hits
	}
	since := map[[2]string]uint64{}
	for at, n := range now {
		since[at] = n - min(n, b.before[at])
	}
	first := b.before == nil
	b.before = now
	if first {
		return nil
	}
	return b.most(since)
}

// most finds what to leave out of hits by functions.
func (b *busiest) most(hits map[[2]string]uint64) (out []share) {
	hits = maps.Clone(hits)
	all := uint64(0)
	for at, n := range hits {
		if b.out[at] {
			delete(hits, at)
			continue
		}
		all += n
	}
	for all >= autoLeast && len(hits) > 1 {
		var top [2]string
		for at, n := range hits {
			if n > hits[top] || n == hits[top] && at[0] < top[0] {
				top = at
			}
		}
		n := hits[top]
		if 2*n <= all {
			break
		}
		out = append(out, share{top[0], top[1], int(100 * n / all)})
		if b.out == nil {
			b.out = map[[2]string]bool{}
		}
		b.out[top] = true
		delete(hits, top)
		all -= n
	}
	return out
}

// leaveOut leaves functions out from now on.
func (g *drawing) leaveOut(m *messages, list []share, disable func(pick func(place, module string) bool) int) {
	for _, s := range list {
		disable(func(place, module string) bool { return place == s.function && module == s.module })
		m.say("%s makes up %d %% of the hits: it is left out from here on", s.function, s.percent)
		g.mu.Lock()
		if g.print.LeftOut == nil {
			g.print.LeftOut = map[string]bool{}
		}
		g.print.LeftOut[s.function] = true
		g.mu.Unlock()
	}
}

// autoFromFile reads a recording once to find what to leave out of it.
func (o *graphOptions) autoFromFile(ctx context.Context, d *Deps, g *drawing, m *messages) error {
	in, closed, err := d.openHits(ctx, m, o.from)
	if err != nil {
		return err
	}
	hits := map[[2]string]uint64{}
	var last *recording.Place
	var count *uint64
	for {
		h, err := in.Next()
		var damaged *recording.DamagedError
		if err == io.EOF || errors.As(err, &damaged) {
			break
		}
		if err != nil {
			return errors.Join(err, closed())
		}
		if h.Place != last {
			if count != nil {
				hits[[2]string{last.Name, last.Module}] += *count
			}
			last, count = h.Place, new(uint64)
		}
		*count++
	}
	if count != nil {
		hits[[2]string{last.Name, last.Module}] += *count
	}
	g.leaveOut(m, (&busiest{}).most(hits), func(func(string, string) bool) int { return 0 })
	return closed()
}
