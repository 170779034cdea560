package vars

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"kprobe/symbols/debuginfo"
)

// value is a typed place, from which a fetch.Variable is made.
type value struct {
	f        *frame
	t        ctype
	p        place
	width    uint8 // for bitfields
	bit      uint8
	atReturn bool
	behind   bool // it was reached through an address
	byEntry  bool // it is a result, at an address from the function's entry
}

var (
	errNoStruct = errors.New("is not a structure")
	errNoTarget = errors.New("points to something without a type")
)

// unreference follows C++'s references to what they refer to.
func (v value) unreference() (value, error) {
	for range maxNested {
		if v.t.kind != kindReference {
			return v, nil
		}
		var err error
		if v, err = v.deref(); err != nil {
			return v, err
		}
	}
	return v, errTooDeep
}

// deref returns what a pointer points to.
func (v value) deref() (value, error) {
	switch v.t.kind {
	case kindArray:
		return v.index(0)
	case kindPointer, kindReference:
	default:
		return v, fmt.Errorf("%s is not a pointer", v.t)
	}
	if v.t.elem.IsZero() {
		return v, fmt.Errorf("%s %w", v.t, errNoTarget)
	}
	elem := v.f.resolve(v.t.elem)
	if v.t.stars > 0 {
		elem = ctype{kind: kindPointer, name: strings.TrimSuffix(v.t.name, "*"), size: 8, elem: v.t.elem, stars: v.t.stars - 1}
	}
	if v.p.kind == isPointer {
		target, ok := v.p.target.Entry()
		if !ok {
			return v, errBadExpression
		}
		p, err := v.f.located(&target)
		if err != nil {
			return v, err
		}
		if v.p.off != 0 || elem.size != 0 {
			if p, err = p.part(v.p.off, elem.size); err != nil {
				return v, err
			}
		}
		v.p, v.t = p, elem
		return v, nil
	}
	at, err := v.p.value(8)
	if err != nil {
		return v, err
	}
	if !v.behind {
		at.own = len(at.steps)
	}
	v.p, v.t, v.behind = place{kind: inMemory, sym: at}, elem, true
	return v, nil
}

// field returns a member of a structure, or of the structure that a pointer leads to.
func (v value) field(name string) (value, error) {
	v, err := v.unreference()
	if err != nil {
		return v, err
	}
	if v.t.kind == kindPointer {
		if v, err = v.deref(); err != nil {
			return v, err
		}
		if v, err = v.unreference(); err != nil {
			return v, err
		}
	}
	if v.t.kind != kindStruct {
		return v, fmt.Errorf("%s %w, it has no member %s", v.t, errNoStruct, name)
	}
	v.t = v.f.whole(v.t)
	m, off, ok := v.f.lookup(v.t, name, 0)
	if !ok {
		if m, ok := v.inVirtualBase(name, 0); ok {
			return m, nil
		}
		if m, ok := v.promoted(name, 0); ok {
			return m, nil
		}
		none := &NotFoundError{Name: name, Where: v.t.String(), Have: v.f.memberNames(v.t, 0)}
		if v.t.entry.Flag(dwarf.AttrDeclaration) {
			_, none.Undefined = v.f.data.FindStructure(&v.t.entry)
		}
		return v, none
	}
	if m.static.Unit() != nil {
		return v.f.staticMember(m.static)
	}
	if m.lost {
		return v, unknown("debug information doesn't say at which bit of %s %s begins", v.t, name)
	}
	if v.p, err = v.f.partOf(v.p, off, m.typ); err != nil {
		return v, fmt.Errorf("%s: %w", name, err)
	}
	v.t, v.width, v.bit = m.typ, m.width, m.bit
	return v, nil
}

// attrGoKind is the reflect.Kind of a Go type, whatever its name is.
const attrGoKind dwarf.Attr = 0x2900

// goKind returns the kind of a Go type. It is Invalid for types of other languages.
func (f *frame) goKind(t ctype) reflect.Kind {
	if !f.languageOf(t).IsGo() {
		return reflect.Invalid
	}
	n, _ := t.entry.Int(attrGoKind)
	return reflect.Kind(max(0, n))
}

// attrGoEmbedded marks embedded fields of Go's structures.
const attrGoEmbedded dwarf.Attr = 0x2903

// promoted finds a member of a structure that a Go structure embeds, directly or by a pointer.
func (v value) promoted(name string, depth int) (value, bool) {
	if depth > maxNested || v.t.kind != kindStruct {
		return v, false
	}
	for c := range v.t.entry.Children() {
		if c.Tag() != dwarf.TagMember || !c.Flag(attrGoEmbedded) {
			continue
		}
		inner, err := v.field(c.Name())
		if err != nil {
			continue
		}
		if inner.t.kind == kindPointer {
			if inner, err = inner.deref(); err != nil {
				continue
			}
		}
		if _, _, ok := v.f.lookup(inner.t, name, 0); ok {
			m, err := inner.field(name)
			return m, err == nil
		}
		if m, ok := inner.promoted(name, depth+1); ok {
			return m, true
		}
	}
	return v, false
}

// staticMember returns a class's own variable, whose definition is outside of the class.
func (f *frame) staticMember(e debuginfo.Entry) (value, error) {
	if _, located := e.Val(dwarf.AttrLocation); !located {
		if _, constant := e.Val(dwarf.AttrConstValue); !constant || !isConst(&e) {
			if d, ok := f.data.FindDefinition(&e); ok {
				e = d
			}
		}
	}
	return f.load(e)
}

// index returns an element of an array, of a slice, or of what a pointer leads to.
func (v value) index(i int64) (value, error) {
	v, err := v.unreference()
	if err != nil {
		return v, err
	}
	switch v.t.kind {
	case kindArray:
		elem, stride := v.f.element(v.t)
		if stride <= 0 && v.f.dimension(v.t.entry, v.t.dim+1) >= 0 {
			return v, unknown("the size of the rows of %s is known only while the program runs", v.t)
		}
		if stride <= 0 || v.t.count > 0 && (i < 0 || i >= v.t.count) {
			return v, fmt.Errorf("%s has no element %d", v.t, i)
		}
		if v.p, err = v.f.partOf(v.p, i*stride, elem); err != nil {
			return v, err
		}
		v.t = elem
		return v, nil
	case kindPointer:
		if v, err = v.deref(); err != nil {
			return v, err
		}
		if v.t = v.f.whole(v.t); v.t.size <= 0 {
			return v, fmt.Errorf("the size of %s is not known", v.t)
		}
		v.p, err = v.p.part(i*v.t.size, v.t.size)
		return v, err
	case kindStruct:
		if elem, ok := v.vector(); ok {
			return elem.index(i)
		}
		if strings.HasPrefix(v.t.entry.Name(), "vector<") { // libstdc++'s
			if impl, err := v.field("_M_impl"); err == nil {
				if start, err := impl.field("_M_start"); err == nil {
					return start.index(i)
				}
			}
		}
		for _, name := range [...]string{"array", "data_ptr"} {
			if _, _, ok := v.f.lookup(v.t, name, 0); ok {
				p, err := v.field(name)
				if err != nil {
					return v, err
				}
				return p.index(i)
			}
		}
	}
	return v, fmt.Errorf("%s has no elements", v.t)
}

// vector returns the pointer to the elements of Rust's Vec, with the elements' type, which the
// pointer itself doesn't have.
func (v value) vector() (value, bool) {
	if !strings.HasPrefix(v.t.name, "Vec<") || !v.f.language(v.t.entry).IsRust() {
		return v, false
	}
	for c := range v.t.entry.Children() {
		if c.Tag() != dwarf.TagTemplateTypeParameter || c.Name() != "T" {
			continue
		}
		elem, ok := c.RefTo(dwarf.AttrType)
		w, err := v.field("buf")
		for range maxNested {
			if err != nil || w.t.kind != kindStruct {
				break
			}
			next, found := w.firstPointer()
			if !found {
				return v, false
			}
			w = next
		}
		w.t.elem = elem
		return w, ok && err == nil && w.t.kind == kindPointer
	}
	return v, false
}
