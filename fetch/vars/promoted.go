package vars

import (
	"debug/dwarf"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// promoted reports whether callers pass a float as a double, because the C function's
// definition has no prototype.
func (f *frame) promoted(t ctype) bool {
	u := f.fn.Unit()
	if t.kind != kindFloat || t.size != 4 || !u.Language().IsC() || !f.keepsPrototypes() {
		return false
	}
	_, _, ok := f.fn.Chased(dwarf.AttrPrototyped)
	return !ok
}

// keepsPrototypes reports whether the compiler records which functions have prototypes.
func (f *frame) keepsPrototypes() bool {
	u := f.fn.Unit()
	return f.isGNU() || strings.Contains(u.Producer(), "clang")
}

// doubled marks the place of a promoted parameter at the function's entry, where debug
// information has the register that passes a double. After the entry, the same register may
// hold the double or the float, and debug information doesn't say which.
func (f *frame) doubled(e *debuginfo.Entry, p place) (place, error) {
	if p.kind != isValue || p.sym.src.Source != fetch.SourceXMM || len(p.sym.steps) != 0 {
		return p, nil
	}
	t, err := f.typeOf(e)
	if err != nil || !f.promoted(t) {
		return p, nil
	}
	if f.atEntry() {
		p.promoted = true
		return p, nil
	}
	q, err := f.byConvention(e)
	if err == nil && (q.kind != isValue || q.sym.src.Source != fetch.SourceXMM || q.sym.src.Reg != p.sym.src.Reg) {
		return p, nil
	}
	return p, unknown("it is not known at this address whether its register has it as a float or, as it was passed, as a double")
}
