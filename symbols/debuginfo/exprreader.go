package debuginfo

// Reader reads the operands of location expressions. What lies past the end is
// zero, and makes the Reader bad.
type Reader struct{ r buf }

// NewReader reads an expression.
func NewReader(expr []byte) *Reader { return &Reader{buf{b: expr}} }

// More reports whether there is something left.
func (r *Reader) More() bool { return r.r.left() > 0 }

// Bad reports whether something past the end was read.
func (r *Reader) Bad() bool { return r.r.bad }

// Uint8 reads a byte.
func (r *Reader) Uint8() uint8 { return r.r.u8() }

// Uint reads a number of 1, 2, 4 or 8 bytes.
func (r *Reader) Uint(size int) uint64 { return r.r.uint(size) }

// Uleb reads an unsigned LEB128 number.
func (r *Reader) Uleb() uint64 { return r.r.uleb() }

// Sleb reads a signed LEB128 number.
func (r *Reader) Sleb() int64 { return r.r.sleb() }

// Bytes reads n bytes, which alias the expression.
func (r *Reader) Bytes(n uint64) []byte { return r.r.take(n) }

// Offset reads an offset in .debug_info of the unit's format.
func (r *Reader) Offset(u *Unit) uint64 {
	if u.version == 2 {
		return r.r.uint(u.addrSize)
	}
	return r.r.offset(u.dwarf64)
}

// IndexedAddress is an entry of .debug_addr.
func (u *Unit) IndexedAddress(i uint64) (uint64, bool) { return u.indexed(u.root(), i) }

// RefAddr names the entry at an offset in .debug_info.
func (u *Unit) RefAddr(off uint64) (Ref, bool) {
	v := Val{form: formRefAddr, U: off}
	return u.ref(v)
}

// RefUnit names the entry at an offset from the start of the unit.
func (u *Unit) RefUnit(off uint64) (Ref, bool) {
	return u.ref(Val{form: formRefUdata, U: off})
}
