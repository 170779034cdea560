package engine

import (
	"time"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// OpenCalls lists the active calls of return probes in a target.
func (tg *Target) OpenCalls() []results.OpenCall {
	var out []results.OpenCall
	now := tickClock(tg.Engine)
	for p := range tg.Placed {
		if p.removed || p.Program == nil {
			continue
		}
		one := func(in detour.Instance, entry []byte) {
			c := results.OpenCall{TID: p.feed.Numbers.Outside(in.TID), Func: p.funcName(), Event: p.Ev.Group + "/" + p.Ev.Name, Slot: symbols.Addr(in.Slot), Return: symbols.Addr(in.Real)}
			if p.GoABI {
				c.G, _ = detour.GoCall(in.Slot)
				c.TID, c.Slot = 0, 0
			}
			if v, ok := entryTime(p.Program, entry); ok {
				c.Entry = v
				if p.timeSlots() != nil {
					c.Entry = now(v)
				}
			}
			out = append(out, c)
		}
		for way := range p.ways() {
			pool, at := way.Memory(), way.At()
			if at == 0 || !way.inUse() {
				continue
			}
			mem, err := tg.ownMemory(pool.Size(), at)
			if err != nil {
				continue
			}
			for _, in := range pool.Used(mem) {
				if way.Owns(mem, in.Number, &p.Probe) {
					one(in, pool.Entry(mem, in.Number))
				}
			}
		}
	}
	for in := range tg.calls.All {
		c := results.OpenCall{TID: in.TID, G: in.Key.G, Func: in.Probe.funcName(), Event: in.Probe.Ev.Group + "/" + in.Probe.Ev.Name, Entry: in.Time, Slot: in.Slot, Return: in.Return}
		if c.G != 0 {
			c.TID, c.Slot = 0, 0
		}
		out = append(out, c)
	}
	return out
}

// ownMemory reads memory that kprobe has mapped in the target.
func (tg *Target) ownMemory(size int, at uint64) ([]byte, error) {
	b := make([]byte, size)
	_, err := tg.Proc.ReadOwn(b, symbols.Addr(at))
	return b, err
}

// entryTime finds the time among the values that were captured at the entry, as the program records
// it. ok is false if there is none.
func entryTime(prog *fetch.Program, entry []byte) (v uint64, ok bool) {
	for i := range prog.Entry {
		if prog.Entry[i].Chain.Source == fetch.SourceTime && len(entry) >= 16+8*i {
			v = le64(entry[8+8*i:])
			return v, v != 0
		}
	}
	return 0, false
}

// rateSpan is the least time between two samples from which the rate of the time stamp counter is
// computed.
const rateSpan = 20 * time.Millisecond

// tickClock returns a function that converts time stamps to nanoseconds of CLOCK_MONOTONIC; 0 if it
// can't. Its first call may take rateSpan.
func tickClock(s *Engine) func(tsc uint64) uint64 {
	first := ring.Sample{TSC: s.tsc, NS: int64(s.now)}
	var cal *ring.Calibration
	return func(tsc uint64) uint64 {
		if cal == nil {
			last := ring.TakeSample(s.counter)
			if first.TSC == 0 || last.NS-first.NS < int64(rateSpan) {
				first = last
				time.Sleep(rateSpan)
				last = ring.TakeSample(s.counter)
			}
			var ok bool
			if cal, ok = ring.Calibrate(first, last); !ok {
				return 0
			}
		}
		return uint64(max(cal.NS(tsc), 0))
	}
}
