package debuginfo

import "kprobe/symbols/dwread"

// Entries of location lists (DWARF 5, table 7.10).
const (
	lleEnd = iota
	lleBaseAddressx
	lleStartxEndx
	lleStartxLength
	lleOffsetPair
	lleDefault
	lleBaseAddress
	lleStartEnd
	lleStartLength
)

// listReader reads the entries of a version 5 list of locations or ranges.
type listReader struct {
	dwread.Reader
	unit *Unit
	top  *unitTop
	base uint64 // address from which offsets count
}

// listAt starts to read a list. Offsets count from the unit's lowest address until an entry
// says otherwise.
func (u *Unit) listAt(sec []byte, off uint64) listReader {
	t := u.root()
	return listReader{Reader: dwread.At(sec, off), unit: u, top: t, base: t.low}
}

// addresses reads the addresses in an entry of a location list: a range, or, if the range is
// empty, the base for the entries that follow. The default entry has no addresses. more is
// false at the end, and at an entry of unknown length.
func (l *listReader) addresses(kind uint8) (r Range, more bool) {
	switch kind {
	case lleBaseAddressx:
		l.base = l.indexed()
	case lleBaseAddress:
		l.base = l.Uint(l.unit.addrSize)
	case lleDefault:
	case lleStartxEndx:
		r.Low, r.High = l.indexed(), l.indexed()
	case lleStartxLength:
		r.Low = l.indexed()
		r.High = r.Low + l.Uleb()
	case lleOffsetPair:
		r.Low, r.High = l.Uleb(), l.Uleb()
		r.Low, r.High = r.Low+l.base, r.High+l.base
	case lleStartEnd:
		r.Low, r.High = l.Uint(l.unit.addrSize), l.Uint(l.unit.addrSize)
	case lleStartLength:
		r.Low = l.Uint(l.unit.addrSize)
		r.High = r.Low + l.Uleb()
	default:
		return r, false
	}
	return r, true
}

// indexed reads the number of an address in .debug_addr, and returns the address.
func (l *listReader) indexed() uint64 {
	a, ok := l.unit.indexed(l.top, l.Uleb())
	if !ok {
		l.Bad = true
	}
	return a
}
