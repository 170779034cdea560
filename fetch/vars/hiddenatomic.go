package vars

import (
	"debug/dwarf"
	"slices"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// Structures with _Atomic members before DWARF 5
//
// LLVM passes and returns structures with _Atomic members in memory, and others of their size in
// registers. Before DWARF 5, debug information doesn't tell of _Atomic. For parameters, their
// places in the debug information or the prologue's stores decide. For results, the registers of
// the parameters decide, or whether the function reads RDI: one that returns in memory returns
// the address that it is passed there.
//
// In C++, where _Atomic is rare, a structure has none as long as nothing shows it.

// mayHideAtomic reports whether a structure that would be in registers may have _Atomic members
// that debug information doesn't tell of.
func (f *frame) mayHideAtomic(t ctype, classes []class) bool {
	u := f.fn.Unit()
	if t.kind != kindStruct || f.isGNU() || u.Version() >= 5 || len(classes) == 0 || isMemory(classes) || isUnknown(classes) {
		return false
	}
	if l := u.Language(); !l.IsC() && !l.IsCXX() {
		return false
	}
	for _, m := range f.members(t) {
		if m.static.Unit() == nil && m.width == 0 && !m.lost { // _Atomic is no bitfield
			return true
		}
	}
	return false
}

// checkAtomic returns an error if nothing shows that a parameter of the function is passed in
// registers, while it may have _Atomic members. inCallers has shown nothing.
func (f *frame) checkAtomic(c *debuginfo.Entry, t ctype, classes []class) error {
	if !f.mayHideAtomic(t, classes) || f.fn.Unit().Language().IsCXX() {
		return nil
	}
	if slices.ContainsFunc(f.entryParts(c), func(p piece) bool { return p.place.inRegister() }) {
		return nil
	}
	if p, ok := f.stored(c); ok && p.kind != inMemory {
		return nil
	}
	return f.unknownAtomic(t, "passed")
}

// unknownAtomic says that nothing shows how a structure is passed or returned.
func (f *frame) unknownAtomic(t ctype, how string) error {
	return unknown("a %s may have _Atomic members, of which DWARF %d doesn't tell, and so it is not known how it is %s", t, f.fn.Unit().Version(), how)
}

// takesAddress reports whether the function is passed an address for its result, by what its
// code does with RDI, where no parameter is then.
func (f *frame) takesAddress() (hidden, known bool) {
	if f.fn.Unit().Language().IsCXX() {
		known = true // unless the code shows that it is
	}
	a := systemV()
	pass := f.passing(&a)
	inDI := false
	_, _ = f.passed(&f.fn, func(c *debuginfo.Entry, t ctype) (place, error) { // no parameter is f.fn, so all of them are visited
		p, err := pass(c, t)
		inDI = inDI || err != nil || p.beginsIn(place{kind: isValue, sym: register(fetch.DI)}) || p.kind == inMemory && p.sym.src.Reg == fetch.DI
		return p, err
	})
	for c := range f.fn.Children() {
		inDI = inDI || c.Tag() == dwarf.TagUnspecifiedParameters
	}
	switch f.useOfDI(false) {
	case diUnknown:
		return false, known
	case diUnread, diPassed:
		return false, true
	}
	if !inDI {
		return true, true
	}
	return false, known
}
