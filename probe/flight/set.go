package flight

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"kprobe/probe/results"
	"kprobe/probe/ring"
)

// Set is the memory files of a process: it has one for each time that probes were left
// in it. Their hits come in one order of time.
type Set []*Reader

// record is one of a set.
type record struct {
	of *Reader
	ring.ViewRecord
}

// Snapshot gives a sink what the rings hold now, in order of time: all of it, or, where
// since isn't 0, what isn't older than that; of a file whose process is gone, than its
// last hit. Records that are just being written are waited for, a moment.
func (s Set) Snapshot(ctx context.Context, since time.Duration, sink results.Sink) error {
	for _, f := range s {
		if err := f.calibrate(); err != nil {
			return err
		}
	}
	for pause := 100 * time.Microsecond; pause < 10*time.Millisecond && !s.dead(); pause *= 2 {
		if _, err := s.take(0, true); err != nil {
			return err
		}
		if !s.waiting() || ctx.Err() != nil {
			break
		}
		time.Sleep(pause)
	}
	list, err := s.take(^uint64(0), false)
	if err != nil {
		return err
	}
	return s.give(s.young(list, since), sink)
}

// young leaves out what is older than that.
func (s Set) young(list []record, since time.Duration) []record {
	if since == 0 || len(list) == 0 {
		return list
	}
	end := list[len(list)-1].time()
	if f := s[0]; f.o.Clock != nil && !f.o.Dead {
		end = f.o.Clock.Mono()
	}
	from := end - int64(since)
	n, _ := slices.BinarySearchFunc(list, from, func(r record, t int64) int { return cmp.Compare(r.time(), t) })
	return list[n:]
}

func (r *record) time() int64 { return r.of.cal.NS(r.TSC) }

func (s Set) dead() bool {
	return !slices.ContainsFunc(s, func(f *Reader) bool { return !f.o.Dead })
}

func (s Set) waiting() bool {
	return slices.ContainsFunc(s, func(f *Reader) bool { return f.view.Waiting() })
}

// take is View.Take of all files.
func (s Set) take(until uint64, wait bool) ([]record, error) {
	var out []record
	for _, f := range s {
		list, err := f.view.Take(until, wait && !f.o.Dead)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			out = append(out, record{f, r})
		}
	}
	if len(s) > 1 {
		slices.SortStableFunc(out, func(a, b record) int { return cmp.Compare(a.TSC, b.TSC) })
	}
	return out, nil
}

// give makes hits of records.
func (s Set) give(list []record, sink results.Sink) error {
	for i := range list {
		r := &list[i]
		err := r.of.one(&r.ViewRecord, sink)
		if errors.Is(err, errOdd) {
			r.of.Odd++
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lateness is how long records of other rings wait for one that is being written.
const lateness = 50 * time.Millisecond

// slop is by how many ticks counters of two CPUs may differ.
const slop = 4096

// Follow gives a sink what the rings hold, and then what comes, until ctx is done, the
// sink ends it, or alive says that there is no more to come; then it gives the rest. The
// process must run on this machine.
func (s Set) Follow(ctx context.Context, sink results.Sink, alive func() bool) error {
	for _, f := range s {
		if err := f.calibrate(); err != nil {
			return err
		}
	}
	whole := time.Now() // when nobody was waited for last
	for last := false; ; {
		until, wait := s[0].o.Clock.TSC()-slop, time.Since(whole) < lateness
		if last {
			until, wait = ^uint64(0), false
		}
		list, err := s.take(until, wait)
		if err != nil {
			if !alive() {
				return nil // it has gone between two looks
			}
			return err
		}
		if !s.waiting() {
			whole = time.Now()
		}
		if err := s.give(list, sink); err != nil || last {
			return err
		}
		for _, f := range s {
			f.recalibrate()
		}
		select {
		case <-ctx.Done():
			last = true
		case <-time.After(5 * time.Millisecond):
			last = !alive()
		}
	}
}
