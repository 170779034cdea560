package area

import (
	"cmp"
	"slices"

	"kprobe/probe/ring"
)

// lifted is where writes were undone: a thread may have a trap from there that is not answered yet.
type lifted struct {
	settled []liftedBytes // in order of address
	fresh   []liftedBytes // those that came since
}

// liftedBytes are bytes that a write had changed.
type liftedBytes struct {
	at      uint64
	changed uint32 // bit n: the byte at at+n
}

const (
	// mostLifted is how many bytes a write changes at most: as many as liftedBytes.changed has bits.
	mostLifted = ring.SiteBytes
	// mostFresh is how many writes are looked through one by one.
	mostFresh = 64
)

// note notes a write, if it is undone.
func (x *lifted) note(w *Write) {
	if !w.Wrote {
		return
	}
	b := liftedBytes{at: w.At}
	for i := range min(len(w.Old), len(w.New), mostLifted) {
		if w.Old[i] != w.New[i] {
			b.changed |= 1 << i
		}
	}
	x.fresh = append(x.fresh, b)
}

// settle sorts the writes that came since the last time, and puts them in among those before. For a hundred thousand
// it takes tens of milliseconds, so who has so many does it before all threads are stopped. A few that come after that
// cost little.
func (x *lifted) settle() {
	fresh, last := x.fresh, len(x.settled)-1
	slices.SortFunc(fresh, func(a, b liftedBytes) int { return cmp.Compare(a.at, b.at) })
	x.settled, x.fresh = append(x.settled, fresh...), nil
	for to := len(x.settled) - 1; len(fresh) > 0; to-- {
		if next := fresh[len(fresh)-1]; last < 0 || x.settled[last].at <= next.at {
			x.settled[to], fresh = next, fresh[:len(fresh)-1]
			continue
		}
		x.settled[to] = x.settled[last]
		last--
	}
}

// has reports whether one of the writes had changed the byte at an address.
func (x *lifted) has(a uint64) bool {
	if len(x.fresh) > mostFresh {
		x.settle()
	}
	holds := func(b liftedBytes) bool {
		return a >= b.at && a-b.at < mostLifted && b.changed>>(a-b.at)&1 != 0
	}
	first, _ := slices.BinarySearchFunc(x.settled, a-min(a, mostLifted-1), func(b liftedBytes, at uint64) int { return cmp.Compare(b.at, at) })
	for _, b := range x.settled[first:] {
		if b.at > a {
			break
		}
		if holds(b) {
			return true
		}
	}
	return slices.ContainsFunc(x.fresh, holds)
}
