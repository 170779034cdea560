package probe

import (
	"cmp"
	"context"
	"slices"
	"time"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/mailbox"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// OpenCall is a call that a return probe has seen begin, and not return.
type OpenCall = results.OpenCall

// Calls that are under way
//
// Who asks what a process is inside of (Live.OpenCalls) is answered through the
// mailbox. What detours follow lies in the process's memory (detour.Pool,
// detour.Calls), what breakpoints follow in this kprobe's. A call that has been left by
// longjmp or an exception stays among them until its place is needed: the asker takes
// it for open only if its slot is one of the stack's.

// maxOpenPages bounds how often is asked.
const maxOpenPages = 100

// OpenCalls lists the calls that the session's return probes have seen begin and not
// return, of this process. Errors are ErrNotTraced and symbols.ErrGone when the session
// or the process ends, and ErrNoAnswer.
func (l *Live) OpenCalls(ctx context.Context) ([]OpenCall, error) {
	var out []OpenCall
	for range maxOpenPages {
		page, err := l.askFor(ctx, &mailbox.Request{Op: mailbox.Open, PID: l.PID, From: len(out)}, nil)
		if err != nil {
			return nil, err
		}
		if out = append(out, page...); len(page) == 0 {
			break
		}
	}
	return out, nil
}

// openAnswer is the answer to a request for calls from one on.
func (s *Session) openAnswer(q *mailbox.Request) []byte {
	var list []OpenCall
	err := s.tracer.Do(func() error {
		if tg := s.targets[q.PID]; tg != nil && !s.closed {
			list = tg.openCalls()
		}
		return nil
	})
	if err != nil {
		return errorClasses.Answer(err, nil)
	}
	slices.SortFunc(list, func(a, b OpenCall) int {
		return cmp.Or(cmp.Compare(a.TID, b.TID), cmp.Compare(b.Slot, a.Slot), cmp.Compare(a.Entry, b.Entry))
	})
	b, err := q.OpenAnswer(list)
	if err != nil {
		return errorClasses.Answer(err, nil)
	}
	return b
}

// openCalls lists the calls that are under way in a target.
func (tg *target) openCalls() []OpenCall {
	var out []OpenCall
	now := tickClock(tg.s)
	for p := range tg.placed {
		if p.removed || p.prog == nil {
			continue
		}
		one := func(in detour.Instance, entry []byte) {
			c := OpenCall{TID: p.feed.numbers.Outside(in.TID), Func: p.fn, Event: p.ev.Group + "/" + p.ev.Name, Slot: symbols.Addr(in.Slot), Return: symbols.Addr(in.Real)}
			if p.goABI {
				c.G, _ = detour.GoCall(in.Slot)
				c.TID, c.Slot = 0, 0
			}
			if v, ok := entryTime(p.prog, entry); ok {
				c.Entry = v
				if p.timeSlots != nil {
					c.Entry = now(v)
				}
			}
			out = append(out, c)
		}
		for way := range p.ways() {
			pool, at := way.memory(), way.at()
			if at == 0 || !way.inUse() {
				continue
			}
			mem, err := tg.ownMemory(pool.Size(), at)
			if err != nil {
				continue
			}
			for _, in := range pool.Used(mem) {
				if way.owns(mem, in.Number, p) {
					one(in, pool.Entry(mem, in.Number))
				}
			}
		}
	}
	for in := range tg.calls.All {
		c := OpenCall{TID: in.TID, G: in.Key.G, Func: in.Probe.fn, Event: in.Probe.ev.Group + "/" + in.Probe.ev.Name, Entry: in.Time, Slot: in.Slot, Return: in.Return}
		if c.G != 0 {
			c.TID, c.Slot = 0, 0
		}
		out = append(out, c)
	}
	return out
}

// ownMemory reads memory that kprobe has mapped in the target.
func (tg *target) ownMemory(size int, at uint64) ([]byte, error) {
	b := make([]byte, size)
	_, err := tg.proc.ReadOwn(b, symbols.Addr(at))
	return b, err
}

// entryTime is the time of the entry among the values that were captured there.
func entryTime(prog *fetch.Program, entry []byte) (v uint64, ok bool) {
	for i := range prog.Entry {
		if prog.Entry[i].Chain.Source == fetch.SourceTime && len(entry) >= 16+8*i {
			v = le64(entry[8+8*i:])
			return v, v != 0
		}
	}
	return 0, false
}

// rateSpan is how long the time stamp counter is watched at least, to know its rate.
const rateSpan = 20 * time.Millisecond

// tickClock converts the time stamp counter to nanoseconds of CLOCK_MONOTONIC.
func tickClock(s *engine) func(tsc uint64) uint64 {
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
