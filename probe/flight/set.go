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

// mostTries is how often a snapshot is looked at anew while triggers take others.
const mostTries = 8

// Snapshot gives a sink the last snapshot that triggers have taken, in order of time; of
// files without one what Live does. Where since isn't 0 it leaves out what is older than
// that, than its last hit.
func (s Set) Snapshot(ctx context.Context, since time.Duration, sink results.Sink) error {
	if err := s.calibrate(); err != nil {
		return err
	}
	for try := 1; ; try++ {
		taken, err := s.taken()
		if err != nil {
			return err
		}
		if len(taken) == 0 {
			return s.Live(ctx, since, sink)
		}
		for _, f := range taken {
			f.view.Snapshot(f.swaps)
		}
		list, err := taken.held(ctx)
		if err != nil {
			return err
		}
		again := false
		for _, f := range taken {
			now, err := ring.ReadSwaps(f.r, f.Layout)
			if err != nil {
				return err
			}
			again = again || now.Taken != f.swaps.Taken
		}
		if again && try < mostTries {
			continue // the rings may have been written anew
		}
		if again {
			list = slices.DeleteFunc(list, func(r record) bool { return r.of.swaps.At != 0 && r.TSC > r.of.swaps.At })
		}
		return taken.give(young(list, since, 0), sink)
	}
}

// taken gives the files with a snapshot, ready to be looked at from the beginning.
func (s Set) taken() (out Set, err error) {
	for _, f := range s {
		if f.swaps, err = f.readSwaps(); err != nil {
			return nil, err
		}
		f.view = ring.NewView(f.r, f.Layout)
		if f.swaps.Taken > 0 {
			out = append(out, f)
		}
	}
	return out, nil
}

// readSwaps tells of the snapshots, when the last one is whole.
func (f *Reader) readSwaps() (s ring.Swaps, err error) {
	for pause := 10 * time.Microsecond; ; pause *= 2 {
		if s, err = ring.ReadSwaps(f.r, f.Layout); err != nil || s.Taken == 0 || s.At != 0 || f.o.Dead || pause > 10*time.Millisecond {
			return s, err
		}
		time.Sleep(pause)
	}
}

// calibrate has all files convert time stamps alike, so that an order of time stamps is one of times: they are of one
// process, and of one clock. The file that was made first has known it for longest.
func (s Set) calibrate() (err error) {
	for _, f := range slices.SortedFunc(slices.Values(s), func(a, b *Reader) int { return cmp.Compare(a.Header.Time.TSC, b.Header.Time.TSC) }) {
		if err = f.calibrate(); err != nil {
			continue
		}
		for _, other := range s {
			other.cal = f.cal
		}
		return nil
	}
	return err
}

// Live gives a sink what the rings hold now, in order of time, of what came behind the
// last snapshot, if there is one: all of it, or, where since isn't 0, what isn't older
// than that; of a file whose process is gone, than its last hit.
func (s Set) Live(ctx context.Context, since time.Duration, sink results.Sink) error {
	end := int64(0)
	if f := s[0]; f.o.Clock != nil && !f.o.Dead {
		end = f.o.Clock.Mono() // before the rings are read: that may take seconds
	}
	if err := s.from((*ring.View).Live); err != nil {
		return err
	}
	list, err := s.held(ctx)
	if err != nil {
		return err
	}
	return s.give(young(list, since, end), sink)
}

// from readies all files for what came behind the last snapshots.
func (s Set) from(look func(*ring.View, ring.Swaps)) error {
	if err := s.calibrate(); err != nil {
		return err
	}
	if _, err := s.taken(); err != nil {
		return err
	}
	for _, f := range s {
		look(f.view, f.swaps)
	}
	return nil
}

// held takes what the rings hold. Records that are just being written are waited for, a
// moment.
func (s Set) held(ctx context.Context) ([]record, error) {
	var timeless []record // have no time stamp
	for pause := 100 * time.Microsecond; pause < 10*time.Millisecond && !s.dead(); pause *= 2 {
		list, err := s.take(0, true)
		if err != nil {
			return nil, err
		}
		timeless = append(timeless, list...)
		if !s.waiting() || ctx.Err() != nil {
			break
		}
		time.Sleep(pause)
	}
	list, err := s.take(^uint64(0), false)
	return append(timeless, list...), err
}

// young leaves out what is older than that: than end, or, where that is 0, than the last.
func young(list []record, since time.Duration, end int64) []record {
	if since == 0 || len(list) == 0 {
		return list
	}
	if end == 0 {
		end = list[len(list)-1].time()
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

// Follow gives a sink what Live does, and then what comes, until ctx is done, the
// sink ends it, or alive says that there is no more to come; then it gives the rest. The
// process must run on this machine.
func (s Set) Follow(ctx context.Context, sink results.Sink, alive func() bool) error {
	if err := s.from((*ring.View).Follow); err != nil {
		return err
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
