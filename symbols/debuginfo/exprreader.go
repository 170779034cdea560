package debuginfo

import "kprobe/symbols/dwread"

// ExprOffset reads an operand of a location expression that is an offset in .debug_info, in
// the unit's format.
func (u *Unit) ExprOffset(r *dwread.Reader) uint64 {
	if u.version == 2 {
		return r.Uint(u.addrSize)
	}
	return r.Offset(u.dwarf64)
}

// IndexedAddress returns an entry of .debug_addr.
func (u *Unit) IndexedAddress(i uint64) (uint64, bool) { return u.indexed(u.root(), i) }

// RefAddr returns a reference to the entry at an offset in .debug_info.
func (u *Unit) RefAddr(off uint64) (Ref, bool) {
	v := Val{form: formRefAddr, U: off}
	return u.ref(v)
}

// RefUnit returns a reference to the entry at an offset from the start of the unit.
func (u *Unit) RefUnit(off uint64) (Ref, bool) {
	return u.ref(Val{form: formRefUdata, U: off})
}
