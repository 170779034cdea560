package plan

import (
	"slices"
	"sort"

	"kprobe/probe/insn"
)

// Known is what else is known about the code around a function. The zero value knows nothing.
type Known struct {
	// Target reports whether something outside the function is known to lead to an address:
	// a branch, a landing pad, a symbol. nil knows none.
	Target func(addr uint64) bool
	// Next is the offset of the next function, or of other bytes that belong to somebody;
	// less than the size is the size. No-ops and int3 before it are padding.
	Next int
}

// Func is a function's decoded code. It may also be several functions that lie side by side, if
// Known.Target knows where they start: a short jump may then use room in neighbouring
// functions.
type Func struct {
	start    uint64
	code     []byte
	size     int
	known    Known
	insts    []inst // in order; bytes that are no instruction are left out
	targets  []int  // offsets that direct branches lead to, sorted
	indirect bool   // has an indirect jump whose targets are not known for certain
	unknown  bool   // has one of whose targets none is known
	entries  []int  // offsets at which functions start
	switches []int  // offsets that jump tables of known length name
	tabled   []int  // offsets that jump tables name
	tails    []pad  // what lies between each function and the next
	pads     []pad
	reached  []bool // see reaches; nil until it is asked for
	room     room
}

// room is the memory for a Func's plans. Patches are valid until the Func is refilled.
type room struct {
	patches      []Patch
	used, probed []pad
	try          try
}

// patch is memory for a patch.
func (r *room) patch() *Patch {
	if len(r.patches) == cap(r.patches) {
		r.patches = make([]Patch, 0, max(8, 2*cap(r.patches))) // those of before stay where they are
	}
	r.patches = r.patches[:len(r.patches)+1]
	return &r.patches[len(r.patches)-1]
}

// inst is what planning nearly always needs of an instruction: there are millions.
type inst struct {
	off   int
	Flags insn.Flags
	Len   uint8
}

// Is reports whether the instruction has all of these flags.
func (i inst) Is(members insn.Flags) bool { return i.Flags.Has(members) }

// Refusal returns why it can't be moved, as that of insn.Inst.
func (i inst) Refusal() string { return insn.Inst{Flags: i.Flags}.Refusal() }

// whole returns everything known about an instruction, and the code from there on.
func (f *Func) whole(i inst) (insn.Inst, []byte) {
	code := f.code[i.off:]
	in, err := insn.Decode(code)
	if err != nil {
		return insn.Inst{Len: i.Len, Flags: i.Flags}, code // it was decoded before
	}
	return in, code
}

func (i inst) end() int { return i.off + int(i.Len) }

// pad is padding [off, end).
type pad struct{ off, end int }

// FromSweep makes a Func of a function that was swept already, with what the sweep knew:
// anchors, and the jump tables that it could read. code are the original bytes that were swept
// and, if there are more, those that follow: puns need up to 5. It is kept.
func FromSweep(s *insn.Function, code []byte, known Known) *Func {
	return new(Func).Refill(s, code, known)
}

// Refill makes f what FromSweep returns, and returns it. It uses the memory that f has from before: planning
// many functions one after another then takes little.
func (f *Func) Refill(s *insn.Function, code []byte, known Known) *Func {
	clear(f.room.patches)
	f.room.patches = f.room.patches[:0]
	f.join([]*insn.Function{s}, code, known)
	return f
}

// Join is FromSweep for functions that lie side by side, in order. code are the bytes from the
// start of the first one on, including those between them. known.Target must know where each
// starts. No-ops and int3 between two functions are padding.
func Join(list []*insn.Function, code []byte, known Known) *Func {
	f := new(Func)
	f.join(list, code, known)
	return f
}

func (f *Func) join(list []*insn.Function, code []byte, known Known) {
	start := list[0].Start()
	f.begin(start, code, int(min(list[len(list)-1].End()-start, uint64(len(code)))), known)
	f.tails = f.tails[:0]
	for n, s := range list {
		f.add(s)
		tail := pad{min(int(s.End()-start), f.size), f.known.Next}
		if n+1 < len(list) {
			tail.end = int(list[n+1].Start() - start)
		}
		f.tails = append(f.tails, tail)
	}
	f.finish()
}

// add adds a function that was swept.
func (f *Func) add(s *insn.Function) {
	f.entries = append(f.entries, int(s.Start()-f.start))
	f.insts = slices.Grow(f.insts, s.Len())
	for at, p := range s.Parts() {
		if off := int(at - f.start); off+int(p.Len) <= f.size {
			f.insts = append(f.insts, inst{off, p.Flags, p.Len})
		}
	}
	for t := range s.Targets() {
		if t.Inside {
			f.targets = append(f.targets, int(t.To-f.start))
		}
	}
	resolved := map[uint64]bool{}
	for _, t := range s.Tables() {
		resolved[t.Jump] = t.Bounded
		for _, to := range t.Targets {
			f.targets = append(f.targets, int(to-f.start))
			f.tabled = append(f.tabled, int(to-f.start))
			if t.Bounded {
				f.switches = append(f.switches, int(to-f.start))
			}
		}
	}
	for _, e := range s.Exits() {
		if e.Indirect && e.Sure {
			resolved[e.Addr] = true
		}
	}
	for _, at := range s.IndirectJumps() {
		i, _, ok := s.At(at)
		bounded, read := resolved[at]
		through := ok && i.Is(insn.RIPRel)
		f.indirect = f.indirect || !bounded && !through
		f.unknown = f.unknown || !read && !through
	}
}

// begin makes f the bytes of a function without its instructions.
func (f *Func) begin(start uint64, code []byte, size int, known Known) {
	size = max(0, min(size, len(code)))
	known.Next = max(size, min(known.Next, len(code)))
	*f = Func{
		start: start, code: code, size: size, known: known,
		insts: f.insts[:0], targets: f.targets[:0], switches: f.switches[:0], tabled: f.tabled[:0],
		entries: append(f.entries[:0], 0), tails: append(f.tails[:0], pad{size, known.Next}), pads: f.pads[:0],
		room: f.room,
	}
}

func (f *Func) finish() {
	slices.Sort(f.targets)
	f.targets = slices.Compact(f.targets)
	f.findPads()
}

// Sites gives the address of every instruction, in order.
func (f *Func) Sites() []uint64 {
	out := make([]uint64, len(f.insts))
	for k, i := range f.insts {
		out[k] = f.start + uint64(i.off)
	}
	return out
}

// index is the number of the instruction that starts at addr, -1 if none does.
func (f *Func) index(addr uint64) int {
	off := addr - f.start
	if addr < f.start || off >= uint64(f.size) {
		return -1
	}
	k := sort.Search(len(f.insts), func(k int) bool { return f.insts[k].off >= int(off) })
	if k == len(f.insts) || f.insts[k].off != int(off) {
		return -1
	}
	return k
}

// target reports whether a branch is known to lead to an offset.
func (f *Func) target(off int) bool {
	if _, ok := slices.BinarySearch(f.targets, off); ok {
		return true
	}
	return f.known.Target != nil && f.known.Target(f.start+uint64(off))
}

// targetIn is the first offset in [from, end) that a branch leads to.
func (f *Func) targetIn(from, end int) (int, bool) {
	for off := from; off < end; off++ {
		if f.target(off) {
			return off, true
		}
	}
	return 0, false
}

// splits reports whether a branch of the function leads between two instructions of [from,
// end), mostly over a prefix. Such a branch can't be moved together with its target.
func (f *Func) splits(from, end int) bool {
	n, _ := slices.BinarySearch(f.targets, from)
	for ; n < len(f.targets) && f.targets[n] < end; n++ {
		if f.index(f.start+uint64(f.targets[n])) < 0 {
			return true
		}
	}
	return false
}

// follows reports whether another instruction directly follows the k-th, and returns it.
func (f *Func) follows(k int) (inst, bool) {
	if k+1 < len(f.insts) && f.insts[k+1].off == f.insts[k].end() {
		return f.insts[k+1], true
	}
	return inst{}, false
}

// findPads notes the padding: no-ops and int3 after instructions that don't fall through, as
// far as nothing leads to them. If a jump's targets are not known, a function has no padding
// inside: Go's compiler puts the no-ops that align a table's target after the label.
func (f *Func) findPads() {
	for k := 0; k < len(f.insts); k++ {
		if !f.insts[k].Is(insn.Stops) {
			continue
		}
		off := f.insts[k].end()
		end := off
		for {
			i, ok := f.follows(k)
			if !ok || f.unknown || !filler(i.Flags, int(i.Len), f.code[i.off]) {
				break
			}
			if _, ok := f.targetIn(i.off, i.end()); ok {
				break
			}
			end = i.end()
			k++
		}
		for _, t := range f.tails {
			if t.off == end {
				end = f.padsIn(t)
				break
			}
		}
		if end > off {
			f.pads = append(f.pads, pad{off, end})
		}
	}
}

// padsIn returns the end of the padding after a function's end.
func (f *Func) padsIn(tail pad) int {
	off := tail.off
	for off < tail.end {
		i, err := insn.Decode(f.code[off:tail.end])
		if err != nil || !filler(i.Flags, int(i.Len), f.code[off]) {
			break
		}
		if _, ok := f.targetIn(off, off+int(i.Len)); ok {
			break
		}
		off += int(i.Len)
	}
	return off
}

// padded reports whether padding follows an instruction that doesn't fall through.
func (f *Func) padded(i inst) bool {
	return i.Is(insn.Stops) && slices.ContainsFunc(f.pads, func(p pad) bool { return p.off == i.end() })
}

// filler reports whether an instruction may be padding. An endbr64 never is: indirect branches lead to it, such as
// those by which the unwinder enters the code that handles an exception.
func filler(flags insn.Flags, length int, first byte) bool {
	return flags.Has(insn.Nop) && !flags.Has(insn.CET) || length == 1 && first == 0xcc
}
