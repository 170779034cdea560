package feed

import (
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Records that are kept as they are
//
// A sink that is a results.Keeper takes the records of a process as they lie in its
// rings, with what is needed to make hits of them later. It does as long as all of the
// process's probes allow that; while one doesn't, as its stacks are worked out, its
// values are names of symbols, or a handler wants its hits, all of the process's hits
// come one by one.

// keeping is a process's side of a Keeper.
type keeping struct {
	t  *Reader
	to results.RecordKeeper
}

// keepBy has a sink take records if it wants to. Nothing is read yet.
func (t *Reader) keepBy(sink results.Sink) {
	t.keep = nil
	if k, ok := sink.(results.Keeper); ok {
		keep := &keeping{t: t}
		if keep.to = k.Keep(keep); keep.to != nil {
			t.keep = keep
		}
	}
}

// taker is who takes the records of a look, nil: they become hits.
func (t *Reader) taker() ring.Taker {
	if t.keep == nil || t.unkept.Load() > 0 {
		return nil
	}
	return t.keep
}

// Take implements ring.Taker. A failure ends the run; what is left in the rings goes the
// same way, and is lost.
func (k *keeping) Take(cpu int, b []byte) error {
	k.failed(k.to.Take(cpu, b))
	return nil
}

// Until implements ring.Taker.
func (k *keeping) Until(tsc uint64) error {
	k.failed(k.to.Until(tsc))
	return nil
}

func (k *keeping) failed(err error) {
	if err != nil {
		k.t.from.Out.Fail(err)
	}
}

// PID implements results.RecordSource.
func (k *keeping) PID() int { return k.t.from.Pid }

// Space implements results.RecordSource.
func (k *keeping) Space() *symbols.Space { return k.t.from.Space }

// Generation implements results.RecordSource.
func (k *keeping) Generation() uint64 { return k.t.generation.Load() }

// Probe implements results.RecordSource.
func (k *keeping) Probe(id uint32) *results.KeptProbe {
	p := k.t.from.Probe(id)
	if p == nil {
		return nil
	}
	return p.Kept
}

// Thread implements results.RecordSource.
func (k *keeping) Thread(tid uint32) (number int, comm string) {
	number = k.t.Numbers.Outside(tid)
	return number, k.t.Names.Of(uint32(number))
}

// Took implements results.RecordSource.
func (k *keeping) Took(id uint32, n uint64, kept bool) {
	p := k.t.from.Probe(id)
	if p == nil {
		return
	}
	if kept {
		p.Counts.Recorded.Add(n)
	} else {
		p.Counts.Lost.Add(n)
	}
}
