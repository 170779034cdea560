package vars

import (
	"encoding/binary"

	"kprobe/fetch"
	"kprobe/symbols/dwread"
)

// numType is the type of a value on the stack (DWARF 5, 2.5.1). The zero numType is the
// generic type, an integer of 64 bits.
type numType struct {
	size   uint8 // in bytes, for integers of less than 8
	signed bool
	opaque bool // a floating-point number or more than 8 bytes, which steps can't compute with
}

var errOpaque = unknown("it is computed as a floating-point number")

// base returns the type of the entry at an offset from the unit's start. 0 is the generic
// type.
func (x *evaluator) base(off uint64) (numType, error) {
	if off == 0 {
		return numType{}, nil
	}
	ref, ok := x.unit.RefUnit(off)
	if !ok {
		return numType{}, errBadExpression
	}
	t := x.f.resolve(ref)
	switch {
	case t.kind == kindFloat || t.size > 8:
		return numType{opaque: true}, nil
	case t.size <= 0 || t.size == 8:
		return numType{}, nil
	}
	return numType{size: uint8(t.size), signed: t.kind == kindInt || t.signed}, nil
}

// as converts a value to a type: its low bytes, extended to 64 bits.
func (s sym) as(t numType) sym {
	if !t.opaque && t.size != 0 {
		bits, back := uint64(64-8*int(t.size)), fetch.StepShr
		if t.signed {
			back = fetch.StepSar
		}
		s = s.fold(fetch.StepShl, bits).fold(back, bits)
	}
	s.typ = t
	return s
}

// typed evaluates the operations that name a type.
func (x *evaluator) typed(op uint8, r *dwread.Reader) error {
	var s sym
	var off uint64
	switch op {
	case opRegvalType, opGNURegvalType:
		n := r.Uleb()
		off = r.Uleb()
		p, err := registerPlace(n)
		if err != nil {
			return err
		}
		s = p.sym
	case opConstType, opGNUConstType:
		off = r.Uleb()
		b := r.Take(uint64(r.U8()))
		if len(b) > 8 {
			return errOpaque
		}
		var room [8]byte
		copy(room[:], b)
		s = constant(binary.LittleEndian.Uint64(room[:]))
	case opDerefType, opGNUDerefType:
		size := r.U8()
		off = r.Uleb()
		if err := x.derefSize(size); err != nil {
			return err
		}
		s, _ = x.pop()
	default: // a conversion
		off = r.Uleb()
		var err error
		if s, err = x.pop(); err != nil {
			return err
		}
	}
	t, err := x.base(off)
	if err != nil {
		return err
	}
	if (op == opConvert || op == opGNUConvert) && (s.typ.opaque || t.opaque) {
		return errOpaque
	}
	return x.push(s.as(t))
}
