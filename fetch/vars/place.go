package vars

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// place is where a value is: in memory at sym; in a register, or computed, as sym; in pieces;
// or constant. A pointer may be nowhere itself but point to something that has a place
// (DW_OP_implicit_pointer).
type place struct {
	kind   placeKind
	sym    sym
	bytes  []byte
	pieces []piece
	target debuginfo.Ref // what an implicit pointer points to
	off    int64         // from the target's start, in bytes
	why    error         // why it isn't known where the rest is, if pieces are missing that may be passed
	// promoted says that the value is a float, and a double lies at the place.
	promoted bool
}

type placeKind uint8

const (
	inMemory placeKind = iota
	isValue
	isBytes
	inPieces
	isPointer
	isNowhere
)

// piece is a part of a value: size bytes from off on.
type piece struct {
	off, size int64
	place     place
}

// partOf returns the place of the part at off, of type t, of a value at place p. There may be
// holes between the pieces of a structure: padding, or members that have no value.
func (f *frame) partOf(p place, off int64, t ctype) (place, error) {
	if p.kind != inMemory && f.isEmpty(t) {
		return place{kind: isBytes, bytes: []byte{}}, nil
	}
	q, err := p.part(off, t.size)
	if p.kind == inPieces && errors.Is(err, errPieces) && (t.kind == kindStruct || t.kind == kindArray) {
		if q = p.some(off, t.size); len(q.pieces) > 0 {
			return q, nil
		}
	}
	return q, err
}

// some returns the existing pieces of a part.
func (p place) some(off, size int64) place {
	out := place{kind: inPieces}
	for _, q := range p.pieces {
		low, high := max(off, q.off), min(off+size, q.off+q.size)
		if low >= high {
			continue
		}
		if at, err := q.place.part(low-q.off, high-low); err == nil {
			out.pieces = append(out.pieces, piece{off: low - off, size: high - low, place: at})
		}
	}
	return out
}

// errPieces says that a value can't be recorded as one.
var errPieces = errors.New("is stored in several places: fetch its members")

// errWide says which part of a wide vector register can't be recorded.
var errWide = errors.New("is in a vector register, of which the first 16 bytes are recorded: fetch an element in these")

// pieced is part for bytes that cross the ends of pieces. It returns the pieces of that part,
// with offsets of their own. All of them must exist.
func (p place) pieced(off, size int64) (place, error) {
	out := place{kind: inPieces}
	have := int64(0)
	for _, q := range p.pieces {
		low, high := max(off, q.off), min(off+size, q.off+q.size)
		if low >= high {
			continue
		}
		at, err := q.place.part(low-q.off, high-low)
		if err != nil {
			return p, err
		}
		out.pieces = append(out.pieces, piece{off: low - off, size: high - low, place: at})
		have += high - low
	}
	if size <= 0 || have != size {
		return p, errPieces
	}
	return out, nil
}

// incomplete reports whether the location of a variable omits pieces.
func (f *frame) incomplete(e *debuginfo.Entry, p place) bool {
	if p.kind != inPieces || len(p.pieces) == 0 {
		return false
	}
	last := p.pieces[len(p.pieces)-1]
	t, err := f.typeOf(e)
	return err == nil && last.off+last.size < t.size ||
		slices.ContainsFunc(p.pieces, func(q piece) bool { return q.place.kind == isNowhere })
}

// part returns the place of the size bytes at off of the value at a place.
func (p place) part(off, size int64) (place, error) {
	switch p.kind {
	case inMemory:
		p.sym = p.sym.add(off)
		return p, nil
	case isValue:
		switch {
		case off == 0:
			return p, nil
		case p.isXMM() && off >= 8 && off+size <= 16:
			return vectorHalf(int(p.sym.src.Reg)).part(off-8, size)
		case p.isXMM() && off > 0 && off < 8 && off+size > 8:
			return p.halves().pieced(off, size)
		case off < 0 || off >= 8 || off+size > 8:
			return p, p.tooWide()
		}
		p.sym = p.sym.step(fetch.Step{Op: fetch.StepShr, Imm: uint64(off) * 8})
		return p, nil
	case isBytes:
		if off < 0 || size < 0 || off+size > int64(len(p.bytes)) {
			return p, unknown("its constant has %d bytes", len(p.bytes))
		}
		p.bytes = p.bytes[off : off+size]
		return p, nil
	case inPieces:
		for _, q := range p.pieces {
			if off >= q.off && off+size <= q.off+q.size {
				return q.place.part(off-q.off, size)
			}
		}
		return p.pieced(off, size)
	}
	return p, fmt.Errorf("that part is %w", fetch.ErrNoValue)
}

// unless returns the place, of which parts may be missing, or the error for all of it. If it is not known
// where the convention has the value, that is why.
func (p place) unless(err, convention error) (place, error) {
	switch {
	case !errors.As(convention, new(*unknownError)):
	case err == nil:
		p.why = convention
	default:
		err = convention
	}
	return p, err
}

// halves returns the two words of an xmm register.
func (p place) halves() place {
	return place{kind: inPieces, pieces: []piece{{0, 8, p}, {8, 8, vectorHalf(int(p.sym.src.Reg))}}}
}

// tooWide returns the error for bytes of a register that can't be recorded. Of vector
// registers (AVX, AVX-512), the lower 16 bytes are recorded.
func (p place) tooWide() error {
	if p.isXMM() {
		return errWide
	}
	return unknown("its register holds only 8 bytes of it")
}

// value returns the 64 bits at the place, of which size bytes count.
func (p place) value(size int64) (sym, error) {
	switch p.kind {
	case inMemory:
		return p.sym.load(8), nil
	case isValue:
		return p.sym, nil
	case isBytes:
		if int64(len(p.bytes)) < size {
			return sym{}, unknown("its constant has %d bytes of %d", len(p.bytes), size)
		}
		var b [8]byte
		copy(b[:], p.bytes)
		return constant(binary.LittleEndian.Uint64(b[:])), nil
	case inPieces:
		q, err := p.part(0, size)
		if err != nil {
			return sym{}, err
		}
		if q.kind == inPieces {
			return sym{}, errPieces
		}
		return q.value(size)
	case isPointer:
		return sym{}, fmt.Errorf("the pointer is %w, but what it points to is available: fetch that", fetch.ErrNoValue)
	}
	return sym{}, fetch.ErrNoValue
}

// sym is a value under construction: a source and steps.
type sym struct {
	src   fetch.Chain
	steps []fetch.Step
	own   int     // how many steps find the variable itself; later steps follow addresses in it
	typ   numType // used while an expression is evaluated
}

func constant(v uint64) sym { return sym{src: fetch.Chain{Source: fetch.SourceImm, Imm: v}} }

func register(r fetch.Reg) sym { return sym{src: fetch.Chain{Source: fetch.SourceReg, Reg: r}} }

// isConst returns the value if it is already known.
func (s sym) isConst() (uint64, bool) {
	return s.src.Imm, s.src.Source == fetch.SourceImm && len(s.steps) == 0
}

// isReg returns the register if the value is a register's contents.
func (s sym) isReg() (fetch.Reg, bool) {
	return s.src.Reg, s.src.Source == fetch.SourceReg && len(s.steps) == 0
}

func (s sym) step(t fetch.Step) sym {
	s.steps = append(s.steps[:len(s.steps):len(s.steps)], t)
	return s
}

func (s sym) add(n int64) sym {
	if n == 0 {
		return s
	}
	if c, ok := s.isConst(); ok {
		return constant(c + uint64(n))
	}
	if i := len(s.steps) - 1; i >= 0 && s.steps[i].Op == fetch.StepAdd && !s.steps[i].FromReg {
		sum := s.steps[i].Imm + uint64(n)
		s.steps = s.steps[:i:i]
		if sum == 0 {
			s.own = min(s.own, i)
			return s
		}
		return s.step(fetch.Step{Op: fetch.StepAdd, Imm: sum})
	}
	return s.step(fetch.Step{Op: fetch.StepAdd, Imm: uint64(n)})
}

func (s sym) load(size uint8) sym {
	off := uint64(0)
	if i := len(s.steps) - 1; i >= 0 && s.steps[i].Op == fetch.StepAdd && !s.steps[i].FromReg {
		off = s.steps[i].Imm
		s.steps = s.steps[:i:i]
		s.own = min(s.own, i)
	}
	return s.step(fetch.Step{Op: fetch.StepLoad, Imm: off, Size: size})
}

// chain returns the fetch chain of a value that is the base of an address, and the offset to
// add to it. A chain that only loads is one that any definition can express. Other chains are
// computed.
func (s sym) chain() (fetch.Chain, int64) {
	c := s.src
	off := int64(0)
	steps := s.steps
	if i := len(steps) - 1; i >= 0 && steps[i].Op == fetch.StepAdd && !steps[i].FromReg {
		off = int64(steps[i].Imm)
		steps = steps[:i]
	}
	if c.Source == fetch.SourceImm && len(steps) == 0 {
		c.Imm += uint64(off)
		return c, 0
	}
	for _, t := range steps {
		if t.Op != fetch.StepLoad || t.Size != 8 {
			c.Source, c.From, c.Steps, c.Loads = fetch.SourceComputed, s.src.Source, steps, nil
			return c, off
		}
		c.Loads = append(c.Loads, fetch.Load{Off: int64(t.Imm)})
	}
	return c, off
}

// whole returns the chain that yields the complete value, without an offset to add.
func (s sym) whole() fetch.Chain {
	c, off := s.chain()
	if off == 0 {
		return c
	}
	c = s.src
	c.Source, c.From, c.Steps, c.Loads = fetch.SourceComputed, s.src.Source, s.steps, nil
	return c
}
