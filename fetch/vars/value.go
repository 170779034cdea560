package vars

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// value is a typed place, on the way to a fetch.Variable.
type value struct {
	f        *frame
	t        ctype
	p        place
	width    uint8 // of bitfields
	bit      uint8
	atReturn bool
}

var errNoStruct = errors.New("is no structure")

// unreference goes through C++'s references, which stand for what they refer to.
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

// deref is what a pointer points to.
func (v value) deref() (value, error) {
	switch v.t.kind {
	case kindArray:
		return v.index(0)
	case kindPointer, kindReference:
	default:
		return v, fmt.Errorf("%s is no pointer", v.t)
	}
	if v.t.elem.IsZero() {
		return v, fmt.Errorf("%s points to nothing that has a type", v.t)
	}
	elem := v.f.resolve(v.t.elem)
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
	v.p, v.t = place{kind: inMemory, sym: at}, elem
	return v, nil
}

// field is a member of a structure, or of what a pointer to one points to.
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
		return v, &NotFoundError{Name: name, Where: v.t.String(), Have: v.f.memberNames(v.t, 0)}
	}
	if m.static.Unit() != nil {
		return v.f.staticMember(m.static)
	}
	if v.p, err = v.p.part(off, m.typ.size); err != nil {
		return v, fmt.Errorf("%s: %w", name, err)
	}
	v.t, v.width, v.bit = m.typ, m.width, m.bit
	return v, nil
}

// staticMember is a class's own variable, whose definition is outside of it.
func (f *frame) staticMember(e debuginfo.Entry) (value, error) {
	if _, ok := e.Val(dwarf.AttrLocation); !ok {
		if _, ok := e.Val(dwarf.AttrConstValue); !ok {
			if d, ok := f.data.FindVariable(e.QualifiedName(), nil); ok {
				e = d
			}
		}
	}
	return f.load(e)
}

// index is an element of an array, of what a pointer points to, or of a slice.
func (v value) index(i int64) (value, error) {
	v, err := v.unreference()
	if err != nil {
		return v, err
	}
	switch v.t.kind {
	case kindArray:
		elem, stride := v.f.element(v.t)
		if stride <= 0 || v.t.count > 0 && (i < 0 || i >= v.t.count) {
			return v, fmt.Errorf("%s has no element %d", v.t, i)
		}
		if v.p, err = v.p.part(i*stride, elem.size); err != nil {
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

// vector is the pointer to the elements of Rust's Vec, with their
// type, which the pointer itself has lost.
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

// variable is the value as a definition can record it.
func (v value) variable(name string) (fetch.Variable, error) {
	v, err := v.unreference()
	if err != nil {
		return fetch.Variable{}, err
	}
	v.t = v.f.whole(v.t)
	out := fetch.Variable{Name: name, AtReturn: v.atReturn}
	if v.t.kind == kindStruct {
		if ptr, length, ok := v.text(); ok {
			return textVariable(out, ptr, length), nil
		}
	}
	out.Pointer = v.t.kind == kindPointer
	if v.t.kind == kindPointer && v.f.isText(v.t) {
		at, err := v.p.value(8)
		if err != nil {
			return out, err
		}
		out.Chain, out.Type = at.whole(), fetch.Type{Base: fetch.String, Size: 8}
		return out, nil
	}
	if v.t.kind == kindArray && v.p.kind == inMemory {
		if elem, _ := v.f.element(v.t); elem.kind == kindChar && elem.size == 1 {
			out.Chain, out.Off = v.p.sym.chain()
			out.InMemory, out.Type = true, fetch.Type{Base: fetch.String, Size: 8}
			return out, nil
		}
	}
	out.Type = v.f.fieldType(v.t, v.width, v.bit, 0)
	if out.Type.Size == 0 {
		return out, fmt.Errorf("values of type %s can't be recorded: ask for a part of it", v.t)
	}
	p := v.p
	if p.kind == inPieces {
		if p, err = p.part(0, v.t.size); err != nil {
			return out, err
		}
		if p.kind == inPieces {
			return out, errPieces
		}
	}
	switch {
	case p.kind == inMemory:
		out.InMemory = true
		out.Chain, out.Off = p.sym.chain()
	case out.Type.Count == 1 && int64(out.Type.Size) == v.t.size && out.Type.Layout != nil && p.kind == isValue && p.sym.src.Source != fetch.SourceXMM:
		// A structure in a register: one word, whose bytes are the members'.
		out.Type.Count = 0
		out.Chain = p.sym.whole()
	case out.Type.Count != 0:
		return out, fmt.Errorf("%s is not in memory: ask for its elements or members: %w", v.t, fetch.ErrNoValue)
	default:
		s, err := p.value(v.t.size)
		if err != nil {
			return out, err
		}
		out.Chain = s.whole()
	}
	return out, nil
}

func textVariable(out fetch.Variable, ptr, length sym) fetch.Variable {
	n := length.whole()
	out.Chain, out.Len = ptr.whole(), &n
	out.Type = fetch.Type{Base: fetch.String, Size: 8}
	return out
}

// isText reports a pointer to characters. Those of unsigned char under another
// name (uint8_t) are bytes.
func (f *frame) isText(t ctype) bool {
	e := f.resolve(t.elem)
	return !t.elem.IsZero() && e.kind == kindChar && e.size == 1 && (e.signed || !e.alias)
}

// text finds where a string of Go, Rust or C++ has its bytes and their number.
func (v value) text() (ptr, length sym, ok bool) {
	var data, count []string
	switch name := v.t.entry.Name(); {
	case name == "string" || name == "&str" || name == "&mut str" || strings.HasPrefix(name, "basic_string_view<char,"):
		switch l := v.f.language(v.t.entry); {
		case l.IsGo():
			data, count = []string{"str"}, []string{"len"}
		case l.IsRust():
			data, count = []string{"data_ptr"}, []string{"length"}
		default:
			data, count = []string{"_M_str"}, []string{"_M_len"}
		}
	case strings.HasPrefix(name, "basic_string<char,"):
		data, count = []string{"_M_dataplus", "_M_p"}, []string{"_M_string_length"}
	case name == "String":
		data, count = []string{"vec", "buf"}, []string{"vec", "len"}
	default:
		return sym{}, sym{}, false
	}
	walk := func(names []string) (sym, bool) {
		w := v
		for _, n := range names {
			var err error
			if w, err = w.field(n); err != nil {
				return sym{}, false
			}
		}
		for range maxNested { // Rust wraps its pointers
			if w.t.kind != kindStruct {
				break
			}
			next, found := w.firstPointer()
			if !found {
				return sym{}, false
			}
			w = next
		}
		s, err := w.p.value(8)
		return s, err == nil
	}
	ptr, ok = walk(data)
	if !ok {
		return sym{}, sym{}, false
	}
	length, ok = walk(count)
	return ptr, length, ok
}

// firstPointer is the member of a wrapper that holds its pointer.
func (v value) firstPointer() (value, bool) {
	for _, name := range [...]string{"inner", "ptr", "pointer", "__0", "data_ptr"} {
		if w, err := v.field(name); err == nil && (w.t.kind == kindStruct || w.t.kind == kindPointer) {
			return w, true
		}
	}
	return v, false
}
