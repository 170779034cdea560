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

// listReader reads the entries of a list of version 5, of locations or of ranges.
type listReader struct {
	dwread.Reader
	unit *Unit
	top  *unitTop
	base uint64 // that offsets count from
}

// listAt starts to read a list: offsets count from the unit's lowest address until
// an entry says otherwise.
func (u *Unit) listAt(sec []byte, off uint64) listReader {
	t := u.root()
	return listReader{Reader: dwread.At(sec, off), unit: u, top: t, base: t.low}
}

// addresses reads what an entry of a location list's kind says of addresses: a
// range, or, where the range is empty, the base of those that follow. The default
// entry has none. more is false at the end, and at an entry whose length nobody
// knows.
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

// indexed reads the number of an address in .debug_addr, and gives the address.
func (l *listReader) indexed() uint64 {
	a, ok := l.unit.indexed(l.top, l.Uleb())
	if !ok {
		l.Bad = true
	}
	return a
}
