package insn

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"
	"sync"
)

// SweepOptions tells Sweep what is known besides the code. The zero value is
// nothing.
type SweepOptions struct {
	// Anchors are addresses at which an instruction is known to start: rows of a line
	// table, starts of unwind entries. Those outside the code are ignored.
	Anchors []uint64
	// Read reads the constants of jump tables: len(b) bytes at the address at. If it is
	// nil, no table is resolved.
	Read func(b []byte, at uint64) error
	// Pointer returns the address in the word at the address at; ok is false if it isn't known. It is asked of
	// tables that Read doesn't have, or that are no jump tables. nil: nothing is known.
	Pointer func(at uint64) (to uint64, ok bool)
	// Part reports whether an address is in code that belongs to a function's, and is only jumped to, such as a cold part.
	// A table may lead there. nil: none is.
	Part func(at uint64) bool
	// Slot tells where the return address is while the instruction at an address runs; ok is false if that isn't known.
	// nil: nothing is known.
	Slot func(at uint64) (s Slot, ok bool)
	// Inside reports whether an address outside the code belongs to the function
	// nevertheless, such as its cold part. If it is nil, none does.
	Inside func(addr uint64) bool
	// NoReturn reports that a call of the address never returns. nil: unknown.
	NoReturn func(target uint64) bool
}

// Function is the code of one function, divided into instructions. It keeps the
// code that it was made from, which must not change. Safe for concurrent use.
type Function struct {
	code    []byte
	start   uint64
	opts    SweepOptions
	starts  []uint32 // offsets of the instructions, rising
	flags   []Flags  // of each
	sizes   []uint8  // of each: Part.sizes
	all     Flags    // those that some instruction has
	desyncs []Desync
	targets []target
	tables  []Table
}

// Desync is a place where the code doesn't read as one sequence of instructions: there is data
// in between, or an anchor inside one.
type Desync struct {
	At     uint64 // the bytes that are none, or the instruction that was left out
	Anchor uint64 // where reading went on; 0 if nothing said where
	Err    error  // why: of Decode, or nil for an anchor inside an instruction
}

// String says it in a few words.
func (d Desync) String() string {
	why := "an instruction is known to start inside the one"
	if d.Err != nil {
		why = d.Err.Error()
	}
	if d.Anchor == 0 {
		return fmt.Sprintf("%s at %#x; what follows is not known", why, d.At)
	}
	return fmt.Sprintf("%s at %#x; instructions go on at %#x", why, d.At, d.Anchor)
}

// Target is a direct branch.
type Target struct {
	From, To uint64
	// Inside: To is in the code.
	Inside bool
	Call   bool
}

// target is a Target as a Function keeps it. A function has many.
type target struct {
	to   uint64
	from uint32 // offset
	call bool
}

// open gives a target in full.
func (f *Function) open(t target) Target {
	return Target{From: f.start + uint64(t.from), To: t.to, Inside: f.inCode(t.to), Call: t.call}
}

// Sweep divides code, which lies at start, into instructions, one after another from start on.
// Bytes that are no instruction end the sequence. It continues at the next anchor or at the
// next target of a direct branch, and the bytes in between belong to no instruction.
//
// The error, ErrTruncated, means that there is no code.
func Sweep(code []byte, start uint64, opts SweepOptions) (*Function, error) {
	s := sweepers.Get().(*Sweeper)
	defer sweepers.Put(s)
	f, err := s.Sweep(code, start, opts)
	if err != nil {
		return nil, err
	}
	out := *f
	out.starts, out.flags, out.sizes, out.targets = slices.Clone(f.starts), slices.Clone(f.flags), slices.Clone(f.sizes), slices.Clone(f.targets)
	*f = Function{starts: f.starts, flags: f.flags, sizes: f.sizes, targets: f.targets} // the Sweeper's own room
	return &out, nil
}

// sweepers are those that no Sweep uses.
var sweepers = sync.Pool{New: func() any { return new(Sweeper) }}

// Sweeper is for sweeping many functions, one after another, in the same memory. The zero value is ready to use.
// It is not safe for concurrent use.
type Sweeper struct{ f Function }

// Sweep is like the function Sweep. What it returns holds until the next call.
func (s *Sweeper) Sweep(code []byte, start uint64, opts SweepOptions) (*Function, error) {
	if len(code) == 0 {
		return nil, fmt.Errorf("divide the code at %#x: %w", start, ErrTruncated)
	}
	f := &s.f
	*f = Function{code: code, start: start, opts: opts, starts: f.starts[:0], flags: f.flags[:0], sizes: f.sizes[:0], targets: f.targets[:0]}
	f.divide(f.anchors(opts.Anchors))
	f.findTables()
	return f, nil
}

// divide finds the instructions.
func (f *Function) divide(anchors []uint32) {
	const usual = 4 // bytes of an instruction
	n := len(f.code)/usual + 1
	code, starts, flags, sizes := f.code, slices.Grow(f.starts, n), slices.Grow(f.flags, n), slices.Grow(f.sizes, n)
	for off := 0; off < len(code); {
		p, err := DecodePart(code[off:])
		if err != nil {
			off = f.resync(off, err, anchors)
			continue
		}
		end := off + int(p.Len)
		if len(anchors) > 0 {
			if next := behind(anchors, off); next < end {
				f.desyncs = append(f.desyncs, Desync{At: f.start + uint64(off), Anchor: f.start + uint64(next)})
				off = next
				continue
			}
		}
		starts, flags, sizes = append(starts, uint32(off)), append(flags, p.Flags), append(sizes, p.sizes())
		f.all |= p.Flags
		if t, ok := p.Target(f.start+uint64(off), code[off:]); ok {
			f.targets = append(f.targets, target{to: t, from: uint32(off), call: p.Flags.Has(Call)})
		}
		off = end
	}
	f.starts, f.flags, f.sizes = starts, flags, sizes
}

// behind gives the first of the anchors behind off; where there is none, an offset that no code has.
func behind(anchors []uint32, off int) int {
	if k := sort.Search(len(anchors), func(k int) bool { return int(anchors[k]) > off }); k < len(anchors) {
		return int(anchors[k])
	}
	return math.MaxInt
}

// anchors gives the offsets of the anchors inside the code, sorted.
func (f *Function) anchors(addrs []uint64) []uint32 {
	var out []uint32
	for _, a := range addrs {
		if f.inCode(a) {
			out = append(out, uint32(a-f.start))
		}
	}
	slices.Sort(out)
	return out
}

func (f *Function) inCode(a uint64) bool { return a-f.start < uint64(len(f.code)) }

// resync finds where instructions go on behind bytes that are none.
func (f *Function) resync(off int, err error, anchors []uint32) int {
	next := min(behind(anchors, off), len(f.code))
	for _, t := range f.targets {
		if to := int(t.to - f.start); f.inCode(t.to) && to > off && to < next {
			next = to
		}
	}
	d := Desync{At: f.start + uint64(off), Err: err}
	if next < len(f.code) {
		d.Anchor = f.start + uint64(next)
	}
	f.desyncs = append(f.desyncs, d)
	return next
}

// Start is the address of the first byte.
func (f *Function) Start() uint64 { return f.start }

// End is the address behind the last byte.
func (f *Function) End() uint64 { return f.start + uint64(len(f.code)) }

// index finds the instruction that starts at the address.
func (f *Function) index(addr uint64) (int, bool) {
	if !f.inCode(addr) {
		return 0, false
	}
	return slices.BinarySearch(f.starts, uint32(addr-f.start))
}

// Boundary reports whether an instruction starts at the address.
func (f *Function) Boundary(addr uint64) bool {
	_, ok := f.index(addr)
	return ok
}

// Around returns the nearest starts of instructions before and after the address, neither of
// them the address itself: Start if there is none before, End if there is none after.
func (f *Function) Around(addr uint64) (before, after uint64) {
	before, after = f.Start(), f.End()
	k := sort.Search(len(f.starts), func(k int) bool { return f.start+uint64(f.starts[k]) >= addr })
	if k > 0 {
		before = f.start + uint64(f.starts[k-1])
	}
	if k < len(f.starts) && f.start+uint64(f.starts[k]) == addr {
		k++
	}
	if k < len(f.starts) {
		after = f.start + uint64(f.starts[k])
	}
	return before, after
}

// At returns the instruction that starts at the address, and the code from
// there on. ok is false if none does.
func (f *Function) At(addr uint64) (i Inst, code []byte, ok bool) {
	k, ok := f.index(addr)
	if !ok {
		return Inst{}, nil, false
	}
	i, code = f.inst(k)
	return i, code, true
}

func (f *Function) inst(k int) (Inst, []byte) {
	code := f.code[f.starts[k]:]
	i, err := Decode(code)
	if err != nil {
		return Inst{Len: 1}, code // the code was changed since
	}
	return i, code
}

// part is Decode's part for the k-th instruction.
func (f *Function) part(k int) Part {
	return Part{Flags: f.flags[k], Len: f.sizes[k] & 15, imm: f.sizes[k] >> 4}
}

func (f *Function) at(k int) uint64 { return f.start + uint64(f.starts[k]) }

// Len is the number of instructions.
func (f *Function) Len() int { return len(f.starts) }

// All calls yield with each instruction in order: an iterator for range.
func (f *Function) All() func(yield func(at uint64, i Inst) bool) {
	return func(yield func(uint64, Inst) bool) {
		for k := range f.starts {
			if i, _ := f.inst(k); !yield(f.at(k), i) {
				return
			}
		}
	}
}

// Parts is All for callers that need no more than that.
func (f *Function) Parts() func(yield func(at uint64, p Part) bool) {
	return func(yield func(uint64, Part) bool) {
		for k := range f.starts {
			if !yield(f.at(k), f.part(k)) {
				return
			}
		}
	}
}

// Desyncs lists where the code doesn't read as one run of instructions.
func (f *Function) Desyncs() []Desync { return slices.Clone(f.desyncs) }

// Targets yields the direct branches, calls included, in order of From.
func (f *Function) Targets() iter.Seq[Target] {
	return func(yield func(Target) bool) {
		for _, t := range f.targets {
			if !yield(f.open(t)) {
				return
			}
		}
	}
}

// Overlaps lists the direct branches into the middle of an instruction, such as to just after a
// lock prefix: both readings run.
func (f *Function) Overlaps() []Target {
	var out []Target
	for t := range f.Targets() {
		if t.Inside && !f.Boundary(t.To) {
			out = append(out, t)
		}
	}
	return out
}

// IndirectJumps lists the addresses of the jumps through a register or memory.
func (f *Function) IndirectJumps() []uint64 {
	if !f.all.Has(IndirectJmp) {
		return nil
	}
	var out []uint64
	for k := range f.starts {
		if f.flags[k].Has(IndirectJmp) {
			out = append(out, f.at(k))
		}
	}
	return out
}
