package vars

import (
	"debug/dwarf"

	"kprobe/fetch"
	"kprobe/symbols/dwread"
)

// virtualBase is a C++ base class whose place only each object knows: an object begins with
// the address of a table, which has the place at that address plus table.
type virtualBase struct {
	typ   ctype
	table int64
}

// virtualBases lists the virtual base classes of a class, without those of its base classes.
func (f *frame) virtualBases(t ctype) []virtualBase {
	var out []virtualBase
	if f.work++; t.kind != kindStruct || f.work > maxWork {
		return nil
	}
	for c := range t.entry.Children() {
		if n, _ := c.Int(dwarf.AttrVirtuality); c.Tag() != dwarf.TagInheritance || n == 0 {
			continue
		}
		v, ok := c.Val(dwarf.AttrDataMemberLoc)
		r, ok2 := c.RefTo(dwarf.AttrType)
		if !ok || !ok2 || len(out) == maxFields {
			continue
		}
		if n, ok := tableOffset(v.B); ok {
			out = append(out, virtualBase{f.resolve(r), n})
		}
	}
	return out
}

// tableOffset reads the offset in the table from the expression DW_OP_dup, DW_OP_deref, N,
// DW_OP_minus or DW_OP_plus, DW_OP_deref, DW_OP_plus.
func tableOffset(b []byte) (int64, bool) {
	r := dwread.At(b, 0)
	if r.U8() != opDup || r.U8() != opDeref {
		return 0, false
	}
	n := int64(0)
	switch op := r.U8(); {
	case op >= opLit0 && op <= opLit31:
		n = int64(op - opLit0)
	case op >= opConst1u && op <= opConsts:
		n = int64(constOperand(op, &r))
	default:
		return 0, false
	}
	switch r.U8() {
	case opMinus:
		n = -n
	case opPlus:
	default:
		return 0, false
	}
	ok := r.U8() == opDeref && r.U8() == opPlus && r.Left() == 0 && !r.Bad
	return n, ok && n > -1<<20 && n < 1<<20
}

// inVirtualBase finds a member of a virtual base class, of the class itself or of its base
// classes.
func (v value) inVirtualBase(name string, depth int) (value, bool) {
	if v.t = v.f.whole(v.t); v.p.kind != inMemory || v.f.tooDeep(depth) {
		return v, false
	}
	for _, b := range v.f.virtualBases(v.t) {
		w := v
		w.t, w.width, w.bit = v.f.whole(b.typ), 0, 0
		w.p.sym = v.p.sym.step(fetch.Step{Op: fetch.StepBase, Imm: uint64(b.table)})
		if _, _, ok := v.f.lookup(w.t, name, 0); ok {
			m, err := w.field(name)
			return m, err == nil
		}
		if m, ok := w.inVirtualBase(name, depth+1); ok {
			return m, true
		}
	}
	for _, m := range v.f.members(v.t) {
		if !m.inherited || m.typ.kind != kindStruct {
			continue
		}
		w := v
		var err error
		if w.p, err = v.p.part(m.off, m.typ.size); err != nil {
			continue
		}
		w.t = m.typ
		if m, ok := w.inVirtualBase(name, depth+1); ok {
			return m, true
		}
	}
	return v, false
}

// hasVirtualBase reports whether a structure has a part whose place only each object knows.
func (f *frame) hasVirtualBase(t ctype) bool {
	for c := range t.entry.Children() {
		if n, _ := c.Int(dwarf.AttrVirtuality); n != 0 && c.Tag() == dwarf.TagInheritance {
			return true
		}
	}
	return false
}
