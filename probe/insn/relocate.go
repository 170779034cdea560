package insn

import (
	"math"
	"slices"
	"sync"
)

// Relocate makes the instruction at the start of code, whose address is from, run at the
// address to. By real instructions, the copy has the original's effect on registers, flags,
// memory and control flow. code may be longer than the instruction. If control continues after
// the original, a jump to there follows.
//
// Some differences remain: x87 instructions record the copy's address for fnstenv; if a
// RIP-relative operand is out of reach of to, the 16 bytes from rsp-144 to rsp-128 are written;
// an indirect jmp through such an operand becomes a ret; and a call through memory reads its
// pointer after the return address was pushed, so the pointer must not lie in that very slot.
//
// The only error is *RefusedError.
func Relocate(code []byte, from, to uint64, opts Options) (Moved, error) {
	r := relocators.Get().(*Relocator)
	defer relocators.Put(r)
	m, err := r.One(code, from, to, opts)
	return m.clone(), err
}

// RelocateWindow is Relocate for all of the instructions in code, which they fill exactly. A
// branch to another instruction of the window goes to its copy. One to the first goes to from
// itself, where a patch leads back here. It refuses a branch between two instructions, and a
// call before the last instruction, which would return into the window.
//
// The code is at most MaxMoved bytes for each instruction.
func RelocateWindow(code []byte, from, to uint64, opts Options) (Moved, error) {
	r := relocators.Get().(*Relocator)
	defer relocators.Put(r)
	m, err := r.Window(code, from, to, opts)
	return m.clone(), err
}

// relocators are those that nobody uses.
var relocators = sync.Pool{New: func() any { return new(Relocator) }}

func (m Moved) clone() Moved {
	m.Code, m.Points, m.Starts = slices.Clone(m.Code), slices.Clone(m.Points), slices.Clone(m.Starts)
	return m
}

// Relocator relocates one window after another in the same memory. The zero Relocator is ready to use. It is not safe
// for concurrent use.
type Relocator struct {
	m      mover
	before []Start // of the round before
}

// One is Relocate. What it returns is valid until the next call.
func (r *Relocator) One(code []byte, from, to uint64, opts Options) (Moved, error) {
	p, err := DecodePart(code)
	if err != nil {
		i, _ := Decode(code)
		return Moved{}, &RefusedError{Rule: "the bytes can't be decoded", At: from, Inst: i, Err: err}
	}
	return r.Window(code[:p.Len], from, to, opts)
}

// Window is RelocateWindow. What it returns is valid until the next call.
func (r *Relocator) Window(code []byte, from, to uint64, opts Options) (Moved, error) {
	m := &r.m
	insts, err := readWindow(m.window.insts[:0], code, from)
	if err != nil {
		return Moved{}, err
	}
	n := len(insts)
	*m = mover{
		to: to, opts: opts, window: window{code, from, insts}, now: slices.Grow(m.now[:0], n),
		buf: slices.Grow(m.buf[:0], len(code)+usualGrowth), points: slices.Grow(m.points[:0], n+1),
	}
	// Offsets of later copies are guessed, where a branch leads to one, then known; that
	// a far branch becomes near in the second round can move them once more.
	m.starts = slices.Grow(r.before[:0], n)[:n]
	clear(m.starts)
	for range 8 {
		r.before = m.starts
		m.asked, m.now, m.buf, m.points = false, m.now[:0], m.buf[:0], m.points[:0]
		if err := m.all(); err != nil {
			return Moved{}, err
		}
		if !m.asked || slices.Equal(m.starts, m.now) {
			return Moved{Code: m.buf, Points: m.points, Starts: m.now, Falls: m.falls}, nil
		}
		m.starts, m.now = m.now, m.starts
	}
	r.before = m.starts // the next call needs two arrays
	return Moved{}, &RefusedError{Rule: "the copy's branches don't settle", At: from}
}

// usualGrowth is by how many bytes copies of windows grow at most, nearly always: the jump
// back and what one instruction takes more.
const usualGrowth = 16

// window is a run of instructions in their original place.
type window struct {
	code  []byte
	from  uint64
	insts []placed
}

// placed is an instruction at its address.
type placed struct {
	Inst
	at   uint64
	code []byte
}

func (p placed) next() uint64 { return p.at + uint64(p.Len) }

// readWindow appends the instructions of code, which lie at from, to list.
func readWindow(list []placed, code []byte, from uint64) ([]placed, error) {
	const shortest = 3 // bytes, of most instructions
	list = slices.Grow(list, len(code)/shortest+1)
	for off := 0; off < len(code); {
		at := from + uint64(off)
		p, err := DecodePart(code[off:])
		i := Inst{Flags: p.Flags, Len: p.Len} // all that is asked of one whose copy is the same bytes
		if !p.same(err) {
			i, err = Decode(code[off:])
		}
		if err != nil {
			return nil, &RefusedError{Rule: "the bytes can't be decoded", At: at, Inst: i, Err: err}
		}
		if rule := i.Refusal(); rule != "" {
			return nil, &RefusedError{Rule: rule, At: at, Inst: i}
		}
		end := off + int(i.Len)
		list = append(list, placed{i, at, code[off:end]})
		off = end
	}
	if len(list) == 0 {
		return nil, &RefusedError{Rule: "there is no instruction", At: from, Err: ErrTruncated}
	}
	return list, nil
}

// SameBytes is the length of the code's first instructions whose copies are the same bytes, wherever they lie.
func SameBytes(code []byte) (n int) {
	for n < len(code) {
		i, same := plain(code[n:])
		if !same {
			break
		}
		n += i
	}
	return n
}

// SameOffset reports whether an instruction starts at an offset of code whose copy lies at the same offset of the code's
// copy, because the instructions before it are the same bytes wherever they lie.
func SameOffset(code []byte, off int) bool {
	for n := 0; n < off && n < len(code); {
		i, same := plain(code[n:])
		if n += i; !same {
			return false
		}
		if n == off {
			return n < len(code)
		}
	}
	return false
}

// plain reports whether the first instruction's copy is the same bytes wherever it lies, and returns its length.
func plain(code []byte) (length int, same bool) {
	p, err := DecodePart(code)
	return int(p.Len), p.same(err)
}

// same reports whether the copy of an instruction, which was decoded with err, is the same bytes wherever it lies.
func (p Part) same(err error) bool {
	return err == nil && !p.Flags.Any(RelBranch|RIPRel|Call) && Inst{Flags: p.Flags}.Refusal() == ""
}

// all emits every instruction and the jump back.
func (m *mover) all() error {
	for k, p := range m.window.insts {
		m.now = append(m.now, Start{From: p.at, Off: len(m.buf)})
		m.cur = p
		last := k == len(m.window.insts)-1
		if p.Flags.Has(Call) && !last && !m.opts.KeepCall {
			return m.refuse("a call that isn't the last instruction would return into the patch")
		}
		if err := m.one(); err != nil {
			return err
		}
		m.falls = !p.Flags.Has(Stops) && (!p.Flags.Has(Call) || m.opts.KeepCall)
	}
	if m.falls {
		m.point(After, 0)
		if !m.opts.NoJumpBack {
			m.jump(m.lead(m.cur.next()))
		}
	}
	m.literals()
	return nil
}

// one emits the copy of the current instruction.
func (m *mover) one() error {
	i := m.cur.Inst
	switch {
	case i.Flags.Has(Loop):
		return m.loop()
	case i.Flags.Has(CondBranch):
		return m.jcc()
	case i.Flags.Has(Jmp | RelBranch):
		return m.jmpDirect()
	case i.Flags.Has(Call | RelBranch):
		return m.callDirect()
	case i.Flags.Has(Call):
		return m.callIndirect()
	case i.Flags.Has(RIPRel):
		return m.ripRelative()
	}
	m.point(Main, 0)
	m.emit(m.cur.code...)
	return nil
}

func (m *mover) refuse(rule string) error {
	return &RefusedError{Rule: rule, At: m.cur.at, Inst: m.cur.Inst}
}

// fits reports whether a displacement has 32 bits.
func fits(d int64) bool { return d >= math.MinInt32 && d <= math.MaxInt32 }
