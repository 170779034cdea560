package vars

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// place is where a value is: in memory at sym; in a register or computed,
// being sym; in pieces; constant; or, of a pointer, nowhere but pointing to
// something that is (DW_OP_implicit_pointer).
type place struct {
	kind   placeKind
	sym    sym
	bytes  []byte
	pieces []piece
	target debuginfo.Ref // of what an implicit pointer points to
	off    int64         // from the target's start, in bytes
	// promoted says that a double lies there, of a float.
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

// piece is a part of a value, of size bytes from off on.
type piece struct {
	off, size int64
	place     place
}

// partOf is where the part of a type at off of what is at a place is. Between the pieces
// of a structure there may be holes: what pads it, or members that have no value.
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

// some are the pieces that there are of a part.
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

// errPieces says what can't be recorded as one value.
var errPieces = errors.New("lies in several places: ask for its members")

// errWide says what of a wide vector register can't be had.
var errWide = errors.New("lies in a vector register, of which the first 16 bytes are recorded: ask for an element in these")

// pieced is part for what lies across several pieces, or their ends: the pieces
// of it, with offsets of its own. All of it must be there.
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

// incomplete reports a variable of which the location leaves pieces out.
func (f *frame) incomplete(e *debuginfo.Entry, p place) bool {
	if p.kind != inPieces || len(p.pieces) == 0 {
		return false
	}
	last := p.pieces[len(p.pieces)-1]
	t, err := f.typeOf(e)
	return err == nil && last.off+last.size < t.size ||
		slices.ContainsFunc(p.pieces, func(q piece) bool { return q.place.kind == isNowhere })
}

// part is where the part of size bytes at off of what is at the place is.
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
			return p, fmt.Errorf("its constant has %d bytes: %w", len(p.bytes), fetch.ErrNoValue)
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

// halves are the two words of an xmm register.
func (p place) halves() place {
	return place{kind: inPieces, pieces: []piece{{0, 8, p}, {8, 8, vectorHalf(int(p.sym.src.Reg))}}}
}

// tooWide says why more of a register can't be had: of those of vectors (AVX,
// AVX-512) the lower 16 bytes are recorded.
func (p place) tooWide() error {
	if p.isXMM() {
		return errWide
	}
	return fmt.Errorf("its register holds 8 bytes of it: %w", fetch.ErrNoValue)
}

// value is the 64 bits, of which size bytes count, that are at the place.
func (p place) value(size int64) (sym, error) {
	switch p.kind {
	case inMemory:
		return p.sym.load(8), nil
	case isValue:
		return p.sym, nil
	case isBytes:
		if int64(len(p.bytes)) < size {
			return sym{}, fmt.Errorf("its constant has %d bytes of %d: %w", len(p.bytes), size, fetch.ErrNoValue)
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
		return sym{}, fmt.Errorf("the pointer is %w, but what it points to is known: ask for that", fetch.ErrNoValue)
	}
	return sym{}, fetch.ErrNoValue
}

// sym is a value in the making: a source and steps.
type sym struct {
	src   fetch.Chain
	steps []fetch.Step
	own   int     // steps that find the variable itself; what an address led to from there on is behind it
	typ   numType // while an expression runs
}

func constant(v uint64) sym { return sym{src: fetch.Chain{Source: fetch.SourceImm, Imm: v}} }

func register(r fetch.Reg) sym { return sym{src: fetch.Chain{Source: fetch.SourceReg, Reg: r}} }

// isConst tells a value that is known already.
func (s sym) isConst() (uint64, bool) {
	return s.src.Imm, s.src.Source == fetch.SourceImm && len(s.steps) == 0
}

// isReg tells a value that is a register's.
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

// chain is the fetch chain of a value that is the base of an address, and what
// is to be added to it. Chains of loads alone are those that any definition
// could have; others are computed.
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

// whole is the chain whose value is all of it.
func (s sym) whole() fetch.Chain {
	c, off := s.chain()
	if off == 0 {
		return c
	}
	c = s.src
	c.Source, c.From, c.Steps, c.Loads = fetch.SourceComputed, s.src.Source, s.steps, nil
	return c
}
