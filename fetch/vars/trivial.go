package vars

import (
	"debug/dwarf"
	"strings"

	"kprobe/symbols/debuginfo"
)

// byReference reports whether a C++ class is passed by its address, because it can't be copied
// by its bytes (DW_CC_pass_by_reference). GCC doesn't record this. By the Itanium C++ ABI,
// 1.1, it holds for classes that are not trivial for the purposes of calls.
func (f *frame) byReference(t ctype) bool { return f.notTrivial(t, 0) }

func (f *frame) notTrivial(t ctype, depth int) bool {
	if f.tooDeep(depth) {
		return false
	}
	if t.kind == kindArray {
		elem, _ := f.element(t)
		return f.notTrivial(elem, depth+1)
	}
	if t.kind != kindStruct {
		return false
	}
	t = f.whole(t)
	if cc, ok := t.entry.Int(dwarf.AttrCalling); ok {
		return cc == passedByReference
	}
	if !f.language(t.entry).IsCXX() {
		return false
	}
	var c copies
	for e := range t.entry.Children() {
		v, virtual := e.Int(dwarf.AttrVirtuality)
		switch e.Tag() {
		case dwarf.TagInheritance:
			if virtual && v != 0 {
				return true
			}
		case dwarf.TagMember:
			if strings.HasPrefix(e.Name(), "_vptr") && e.Flag(dwarf.AttrArtificial) {
				return true
			}
		case dwarf.TagSubprogram:
			if virtual && v != 0 || c.add(f, t, e) {
				return true
			}
		}
	}
	if c.deleted > 0 && c.kept == 0 {
		return true // no constructor can copy it
	}
	for _, m := range f.members(t) {
		if m.static.Unit() == nil && f.notTrivial(m.typ, depth+1) {
			return true
		}
	}
	return false
}

// copies counts the constructors that copy or move a class.
type copies struct{ kept, deleted int }

// attrDeleted is DWARF 5's DW_AT_deleted.
const attrDeleted dwarf.Attr = 0x8a

// add examines a function of a class. provided says that the source defines a function that a
// class copied by its bytes doesn't have.
func (c *copies) add(f *frame, t ctype, e debuginfo.Entry) (provided bool) {
	name, class := e.Name(), t.entry.Name()
	class, _, _ = strings.Cut(class, "<")
	isDestructor := strings.HasPrefix(name, "~")
	if !isDestructor && (name != class || !f.copiesItself(t, e)) || e.Flag(dwarf.AttrArtificial) && !e.Flag(attrDeleted) {
		return false
	}
	if e.Flag(attrDeleted) {
		if !isDestructor {
			c.deleted++
		}
		return false
	}
	if d, ok := e.Int(dwarf.AttrDefaulted); ok && d == 1 { // in the class itself
		if !isDestructor {
			c.kept++
		}
		return false
	}
	return true
}

// copiesItself reports whether a constructor's only parameter is a reference to its class.
func (f *frame) copiesItself(t ctype, e debuginfo.Entry) bool {
	n := 0
	itself := false
	for p := range e.Children() {
		if p.Tag() != dwarf.TagFormalParameter || p.Flag(dwarf.AttrArtificial) {
			continue
		}
		n++
		r, ok := p.RefTo(dwarf.AttrType)
		if !ok {
			return false
		}
		if ref := f.resolve(r); ref.kind == kindReference && !ref.elem.IsZero() {
			to := f.resolve(ref.elem)
			itself = to.kind == kindStruct && to.entry.QualifiedName() == t.entry.QualifiedName()
		}
	}
	return n == 1 && itself
}
