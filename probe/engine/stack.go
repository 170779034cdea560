package engine

import (
	"sync"

	"kprobe/fetch"
	"kprobe/probe/area"
	"kprobe/probe/results"
	"kprobe/symbols"
	"kprobe/symbols/unwind"
)

// How a stack is recorded
//
// A hit leaves the registers and the innermost bytes of the stack in its
// record (fetch.StackCopy): by the detour, without a trap, or by the tracer at
// a breakpoint. The goroutine that reads the records works the callers out of
// that copy. So what is printed is of the moment of the hit; only what is known
// of the code (call frame information, symbols) is looked up later.
//
// Return probes don't follow calls by return trampolines in a session that records
// stacks: a return trampoline in a return slot would hide the caller, and the instance
// that knows it may have been used again when the record is read. The return trampolines
// that remain, where a return address can't carry a breakpoint, are looked up in
// a log that says when each was laid.

// stackRing is the size of a ring in a session that records stacks, in bytes:
// 3,900 stacks of 8 KiB.
const stackRing = 32 << 20

// stackWalk is what a feed needs to work out stacks. It belongs to the goroutine
// that reads.
type stackWalk struct {
	walker *symbols.Walker
	mem    unwind.Stack
	frames []symbols.StackFrame
	time   uint64 // of the hit, in ns of CLOCK_MONOTONIC
}

// recordsStacks reports whether a definition of the session asks for stacks.
func (s *Engine) recordsStacks() bool { return s.Stacks.Load() }

func (s *Engine) noteStack(d *fetch.Def) {
	if d.Stack > 0 {
		s.Stacks.Store(true)
	}
}

// ringSize is the size of a ring in a new memory file; 0 is the default.
func (s *Engine) ringSize() int {
	if s.Opts.RingSize > 0 {
		return s.Opts.RingSize
	}
	if s.recordsStacks() {
		return stackRing
	}
	return 0
}

// stack works out the stack of a hit, whose registers are those at pc.
func (t *Feed) stack(p *Placed, h *results.Hit, data []byte, pc symbols.Addr) {
	if p.Ev.Return {
		pc = h.RetIP
	}
	w := &t.walk
	regs, ok := p.prog.Unwind(data, pc, &w.mem)
	if !ok {
		return
	}
	if p.Ev.Return && w.mem.AtReturn(regs.V[unwind.SP], uint64(h.RetIP)) {
		regs.V[unwind.SP] += 8
	}
	if w.walker == nil {
		w.walker = symbols.NewWalker(t.Space)
		w.walker.Behind = func(ra, slot symbols.Addr) symbols.Addr { return t.landed.behind(ra, slot, w.time) }
	}
	w.time = h.Time
	w.frames, h.StackEnd = w.walker.Walk(w.frames[:0], regs, &w.mem, p.prog.Stack.Frames)
	if len(w.frames) > 0 && p.data != nil {
		w.frames[0].Addr = h.IP
	}
	h.Stack = w.frames
}

// trampolineLog remembers the return trampolines that were laid into return slots, the last
// maxLanded of them: those of calls that are over when a record is read, too.
type trampolineLog struct {
	mu     sync.Mutex
	first  symbols.Addr // of the return trampolines
	landed []landed     // a ring
	next   int
	hidden [][2]symbols.Addr // code of return probes with return trampolines of their own
}

// landed is one return trampoline in a slot, from a time on.
type landed struct {
	time     uint64 // ns of CLOCK_MONOTONIC
	at       symbols.Addr
	slot, ra symbols.Addr
}

// maxLanded calls take over 100 ms, at a stop for each.
const maxLanded = 4096

// note remembers that a return trampoline was laid.
func (l *trampolineLog) note(first symbols.Addr, one landed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = first
	if len(l.landed) < maxLanded {
		l.landed = append(l.landed, one)
		return
	}
	l.landed[l.next] = one
	l.next = (l.next + 1) % maxLanded
}

// hide notes the code of a return probe that follows calls by return trampolines: it was
// armed before the session recorded stacks, and who has called is not known.
func (l *trampolineLog) hide(from, to symbols.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hidden = append(l.hidden, [2]symbols.Addr{from, to})
}

// behind is what a return address in a slot stood for at a time: itself if it
// is no return trampoline, 0 if nobody knows.
func (l *trampolineLog) behind(ra, slot symbols.Addr, time uint64) symbols.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.hidden {
		if h[0] <= ra && ra < h[1] {
			return 0
		}
	}
	if l.first == 0 || ra < l.first || ra >= l.first+area.MostTrampolines*area.TrampolineSize {
		return ra
	}
	for i := range l.landed {
		one := &l.landed[(l.next+2*len(l.landed)-1-i)%len(l.landed)]
		if one.at == ra && one.time <= time {
			if one.slot == slot {
				return one.ra
			}
			break
		}
	}
	return 0
}

// stackEndOf is the upper end of the first thread's stack; 0 is unknown.
func stackEndOf(maps []symbols.Mapping) uint64 {
	for i := range maps {
		if maps[i].Path == "[stack]" {
			return uint64(maps[i].End)
		}
	}
	return 0
}
