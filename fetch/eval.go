package fetch

import (
	"bytes"
	"encoding/binary"
	"slices"

	"kprobe/symbols"
)

// EvalEntry appends what a return probe needs from its function's entry. Eval finds it in
// Context.Entry. Without captures, or without registers, it appends nothing.
func (p *Program) EvalEntry(c *Context, dst []byte) []byte {
	if len(p.Entry) == 0 || c.Regs == nil {
		return dst
	}
	e := evaluator{c: c, base: len(dst)}
	e.dst = appendZero(dst, p.EntrySize())
	for i := range p.Entry {
		slot := e.dst[e.base+8+8*i:][:8]
		if v, ok := e.chain(&p.Entry[i].Chain, slot); ok {
			binary.LittleEndian.PutUint64(slot, v)
			continue
		}
		clear(slot)
		setBit(e.dst[e.base:], i)
	}
	return e.dst
}

// Eval appends the hit's argument data to dst. pass is false if the filter rejected the hit;
// rec is then dst unchanged. Eval does not allocate once dst has room. What can't be read is a
// fault in the record and not an error.
//
// c.Regs must be set, and c.Entry if the program has captures. Otherwise there is no hit to
// record, and pass is false.
func (p *Program) Eval(c *Context, dst []byte) (rec []byte, pass bool) {
	if c.Regs == nil || len(c.Entry) < p.EntrySize() {
		return dst, false
	}
	e := evaluator{c: c, base: len(dst)}
	e.dst = appendZero(dst, p.Fixed)
	for i := range p.Args {
		e.arg(&p.Args[i])
	}
	if p.Filter != nil && !p.runFilter(c, e.dst[e.base:]) {
		return e.dst[:e.base], false
	}
	if p.Stack != nil && p.Stack.Mark == 0 {
		e.copyStack(p.Stack, p.Stack.Slot)
	}
	return e.dst, true
}

func appendZero(dst []byte, n int) []byte {
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	clear(dst[at:])
	return dst
}

func setBit(b []byte, bit int)      { b[bit/8] |= 1 << (bit % 8) }
func hasBit(b []byte, bit int) bool { return b[bit/8]&(1<<(bit%8)) != 0 }

// evaluator is the state of one evaluation. Loads use the slot of the resulting value as their
// buffer, so that nothing is allocated.
type evaluator struct {
	c      *Context
	dst    []byte
	base   int
	vector *Vector
}

func (e *evaluator) read(b []byte, at uint64) bool {
	if e.c.Mem == nil {
		return false
	}
	n, err := e.c.Mem.ReadMemory(b, symbols.Addr(at))
	return err == nil && n == len(b)
}

func (e *evaluator) load(scratch []byte, at uint64) (uint64, bool) {
	if !e.read(scratch[:8], at) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(scratch), true
}

func (e *evaluator) chain(ch *Chain, scratch []byte) (v uint64, ok bool) {
	if v, ok = e.source(ch, scratch); !ok {
		return 0, false
	}
	if ch.Source == SourceComputed {
		if v, ok = e.steps(ch.Steps, v, scratch); !ok {
			return 0, false
		}
	}
	for _, l := range ch.Loads {
		if v, ok = e.load(scratch, v+uint64(l.Off)); !ok {
			return 0, false
		}
	}
	return v, true
}

func (e *evaluator) source(ch *Chain, scratch []byte) (uint64, bool) {
	switch ch.root() {
	case SourceReg:
		return e.c.Regs.Get(ch.Reg)
	case SourceImm:
		return ch.Imm, true
	case SourceStack:
		return e.load(scratch, e.c.Regs.GPR[SP]+uint64(ch.Off))
	case SourceXMM:
		return e.xmm(int(ch.Reg), 0)
	case SourceVector:
		return e.xmm(int(ch.Reg), int(ch.Off))
	case SourceEntry:
		at := 8 + 8*ch.N
		if hasBit(e.c.Entry, ch.N) {
			return 0, false
		}
		return binary.LittleEndian.Uint64(e.c.Entry[at:]), true
	case SourcePID:
		return uint64(e.c.PID), true
	case SourceTID:
		return uint64(e.c.TID), true
	case SourceCPU:
		return uint64(e.c.CPU), true
	case SourceTime:
		return e.c.Time, true
	case SourceWatch:
		return e.c.Watched.value(ch.N)
	}
	return 0, false
}

func (e *evaluator) xmm(n, off int) (uint64, bool) {
	if e.vector == nil && e.c.Vector != nil {
		if v, err := e.c.Vector(); err == nil {
			e.vector = v
		}
	}
	if e.vector == nil || n >= len(e.vector) || off != 0 && off != 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(e.vector[n][off:]), true
}

func (e *evaluator) arg(a *ArgProgram) {
	slot := e.dst[e.base+a.Slot:][:a.Size]
	ok := true
	switch a.Store {
	case StoreText:
		text := a.Text
		if a.Source == SourceComm {
			text = e.c.Comm
		}
		e.putText(a.Slot, text)
		return
	case StoreValue, StoreSymbol:
		var v uint64
		if v, ok = e.chain(&a.Chain, slot); ok {
			binary.LittleEndian.PutUint64(slot, a.Type.extend(v))
		}
	case StoreParts:
		ok = e.parts(a)
	case StoreMem:
		ok = e.mem(a, slot)
	default:
		e.textArg(a, slot)
		return
	}
	if !ok {
		clear(slot)
		setBit(e.dst[e.base:], a.FaultBit)
	}
}

func (e *evaluator) parts(a *ArgProgram) bool {
	end := len(e.dst)
	defer func() { e.dst = e.dst[:end] }()
	e.dst = slices.Grow(e.dst, 8)[:end+8]
	scratch := e.dst[end:]
	slot := e.dst[e.base+a.Slot:][:a.Size]
	clear(slot)
	for i := range a.Parts {
		p := &a.Parts[i]
		v, ok := e.chain(&p.Chain, scratch)
		if !ok {
			clear(slot)
			return false
		}
		binary.LittleEndian.PutUint64(scratch, v)
		copy(slot[p.Off:p.Off+int(p.Size)], scratch)
	}
	return true
}

func (e *evaluator) mem(a *ArgProgram, slot []byte) bool {
	v, ok := e.chain(&a.Chain, slot)
	if !ok {
		return false
	}
	size := int(a.Type.Size)
	if a.Type.Count != 0 {
		used := size * int(a.Type.Count)
		clear(slot[used:])
		return e.read(slot[:used], v+uint64(a.StoreOff))
	}
	clear(slot)
	if !e.read(slot[:size], v+uint64(a.StoreOff)) {
		return false
	}
	binary.LittleEndian.PutUint64(slot, a.Type.element(slot, 0))
	return true
}

func (e *evaluator) textArg(a *ArgProgram, slot []byte) {
	v, ok := e.chain(&a.Chain, slot)
	switch {
	case a.Store == StoreStrings:
		ok = ok && e.read(slot, v+uint64(a.StoreOff))
		for i := 0; i < int(a.Type.Count); i++ {
			// The texts may move dst.
			at := a.Slot + 8*i
			e.putString(a, at, binary.LittleEndian.Uint64(e.dst[e.base+at:]), ok)
		}
	case a.Store == StoreCounted:
		var n uint64
		if ok {
			n, ok = e.chain(a.Len, slot)
		}
		v += uint64(a.StoreOff)
		if ok && int64(n) < 0 && a.Type.Base == Bytes && v>>47 == 0 {
			e.putWord(a.Slot, addressWord(v))
			return
		}
		e.putCounted(a, v, int64(n), ok)
	case a.Store == StoreContent:
		e.putContent(a, v+uint64(a.StoreOff), ok)
	case a.Store == StoreString:
		e.putString(a, a.Slot, v+uint64(a.StoreOff), ok)
	case !ok:
		e.putWord(a.Slot, TextFault)
	case a.Store == StorePath:
		e.path(a, v, slot)
	}
}

// room is how many bytes of text the record can still take.
func (e *evaluator) room() int { return max(0, MaxData-(len(e.dst)-e.base)) }

func (e *evaluator) putWord(at int, w uint64) {
	binary.LittleEndian.PutUint64(e.dst[e.base+at:], w)
}

// endText writes the word of the text that starts at start of dst and ends
// with it, cut to what fits.
func (e *evaluator) endText(at, start int, truncated bool) {
	n := len(e.dst) - start
	if fit := min(MaxString, max(0, MaxData-(start-e.base))); n > fit {
		n, truncated = fit, true
		e.dst = e.dst[:start+n]
	}
	w := uint64(start-e.base) | uint64(n)<<32
	if truncated {
		w |= TextTruncated
	}
	e.putWord(at, w)
}

func (e *evaluator) putText(at int, s string) {
	start := len(e.dst)
	e.dst = append(e.dst, s...)
	e.endText(at, start, false)
}

// firstRead is how much of a string is read first. Most end there. Reading to the end of the
// page would cost more than the second read that a few need.
const firstRead = 256

const pageSize = 4096

// putString reads a string up to NUL. It never reads across the end of a page before everything
// up to there was read and had no NUL.
func (e *evaluator) putString(a *ArgProgram, slot int, at uint64, ok bool) {
	if !ok || e.c.Mem == nil {
		e.putWord(slot, TextFault)
		return
	}
	start, limit, want := len(e.dst), min(a.TextMax(), e.room()), firstRead
	whole := a.Max > 0 && a.Max <= a.TextMax()
	if whole {
		limit = a.Max
	}
	for n := 0; n < limit; {
		chunk := min(limit-n, want, int(pageSize-at%pageSize))
		want = pageSize
		e.dst = slices.Grow(e.dst, chunk)[:start+n+chunk]
		buf := e.dst[start+n:]
		got, err := e.c.Mem.ReadMemory(buf, symbols.Addr(at))
		got = max(0, min(got, chunk))
		if i := bytes.IndexByte(buf[:got], 0); i >= 0 {
			e.dst = e.dst[:start+n+i]
			e.endText(slot, start, false)
			return
		}
		if err != nil || got < chunk {
			e.dst = e.dst[:start]
			e.putWord(slot, TextFault)
			return
		}
		n += chunk
		at += uint64(chunk)
	}
	e.endText(slot, start, !whole)
}

// putCounted reads n bytes of text, or of n units of some bytes.
func (e *evaluator) putCounted(a *ArgProgram, at uint64, n int64, ok bool) {
	if !ok || n < 0 {
		e.putWord(a.Slot, TextFault)
		return
	}
	start, fit := len(e.dst), int64(min(a.TextMax(), e.room()))
	cut := false
	if a.Unit != 0 {
		cut = n > int64(a.Max)
		n = min(n, int64(a.Max)) * int64(a.Unit)
	}
	size := int(min(n, fit))
	e.dst = slices.Grow(e.dst, size)[:start+size]
	if size > 0 && !e.read(e.dst[start:], at) {
		e.dst = e.dst[:start]
		e.putWord(a.Slot, TextFault)
		return
	}
	e.endText(a.Slot, start, cut || n > fit)
}
