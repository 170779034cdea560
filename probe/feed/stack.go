package feed

import (
	"sync"

	"kprobe/probe/results"
	"kprobe/symbols"
	"kprobe/symbols/unwind"
)

// stackWalk is what a reader needs to unwind stacks. It belongs to the goroutine that reads.
type stackWalk struct {
	walker *symbols.Walker
	mem    unwind.Stack
	frames []symbols.StackFrame
	time   uint64 // the hit's time, in ns of CLOCK_MONOTONIC
}

// stack unwinds the stack of a hit, from the copy in its record. pc is the hit's instruction pointer.
func (t *Reader) stack(p *Probe, h *results.Hit, data []byte, pc symbols.Addr) {
	if p.Event.Return {
		pc = h.RetIP
	}
	w := &t.walk
	regs, ok := p.Program.Unwind(data, pc, &w.mem)
	if !ok {
		return
	}
	if p.Event.Return && w.mem.AtReturn(regs.V[unwind.SP], uint64(h.RetIP)) {
		regs.V[unwind.SP] += 8
	}
	if w.walker == nil {
		w.walker = symbols.NewWalker(t.from.Space)
		w.walker.Behind = func(ra, slot symbols.Addr) symbols.Addr { return t.Trampolines.behind(ra, slot, w.time) }
	}
	w.time = h.Time
	w.frames, h.StackEnd = w.walker.Walk(w.frames[:0], regs, &w.mem, p.Program.Stack.Frames)
	if len(w.frames) > 0 && p.Watches {
		w.frames[0].Addr = h.IP
	}
	h.Stack = w.frames
}

// Trampolines has the last maxLanded return trampolines that were written to slots. This includes those of calls
// that have returned since, because a record may be read later.
type Trampolines struct {
	mu     sync.Mutex
	first  symbols.Addr // of the return trampolines
	end    symbols.Addr // behind the last
	landed []Landed     // used as a ring
	next   int
	hidden [][2]symbols.Addr // code of return probes with return trampolines of their own
}

// Landed is one return trampoline in a slot, from a time on.
type Landed struct {
	Time uint64       // ns of CLOCK_MONOTONIC
	At   symbols.Addr // the trampoline
	Slot symbols.Addr
	Ret  symbols.Addr // what the slot held
}

// maxLanded bounds the list. So many calls take more than 100 ms, because each costs a stop.
const maxLanded = 4096

// Note notes that one of the return trampolines from first to end was written to a slot. Any goroutine may call
// it.
func (l *Trampolines) Note(first, end symbols.Addr, one Landed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.end = first, end
	if len(l.landed) < maxLanded {
		l.landed = append(l.landed, one)
		return
	}
	l.landed[l.next] = one
	l.next = (l.next + 1) % maxLanded
}

// Hide notes the code of a return probe with return trampolines of its own, which was armed before the session
// recorded stacks. The callers behind such a return trampoline are not known.
func (l *Trampolines) Hide(from, to symbols.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hidden = append(l.hidden, [2]symbols.Addr{from, to})
}

// behind is the program's return address for an address that a slot had at a given time: ra itself if it is no
// return trampoline; 0 if it isn't known.
func (l *Trampolines) behind(ra, slot symbols.Addr, time uint64) symbols.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.hidden {
		if h[0] <= ra && ra < h[1] {
			return 0
		}
	}
	if l.first == 0 || ra < l.first || ra >= l.end {
		return ra
	}
	for i := range l.landed {
		one := &l.landed[(l.next+2*len(l.landed)-1-i)%len(l.landed)]
		if one.At == ra && one.Time <= time {
			if one.Slot == slot {
				return one.Ret
			}
			break
		}
	}
	return 0
}
