package feed

import (
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Records that are kept as they are
//
// A sink that is a results.Keeper takes the records of a process as they lie in its rings, with everything
// that is needed to decode them later. This needs all of the process's probes to allow it. A probe
// doesn't if it records stacks, if its values are names of symbols, or if a handler takes its hits. While
// there is such a probe, all hits of the process are passed on one by one.

// keeping is a process's side of a Keeper.
type keeping struct {
	t  *Reader
	to results.RecordKeeper
}

// keepBy makes a sink that is a Keeper take records, if it accepts this process. It is called before the first
// read.
func (t *Reader) keepBy(sink results.Sink) {
	t.keep = nil
	if k, ok := sink.(results.Keeper); ok {
		keep := &keeping{t: t}
		if keep.to = k.Keep(keep); keep.to != nil {
			t.keep = keep
		}
	}
}

// taker takes the records of a look as they are; nil: they become hits.
func (t *Reader) taker() ring.Taker {
	if t.keep == nil || t.unkept.Load() > 0 {
		return nil
	}
	return t.keep
}

// Take implements ring.Taker. A failure ends the run. Records that are read after that are lost.
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
