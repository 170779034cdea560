package vars

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"reflect"
	"slices"
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
	behind   bool // an address led to it
}

var (
	errNoStruct = errors.New("is no structure")
	errNoTarget = errors.New("points to nothing that has a type")
)

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
		if m, ok := v.inVirtualBase(name, 0); ok {
			return m, nil
		}
		if m, ok := v.promoted(name, 0); ok {
			return m, nil
		}
		return v, &NotFoundError{Name: name, Where: v.t.String(), Have: v.f.memberNames(v.t, 0)}
	}
	if m.static.Unit() != nil {
		return v.f.staticMember(m.static)
	}
	if v.p, err = v.f.partOf(v.p, off, m.typ); err != nil {
		return v, fmt.Errorf("%s: %w", name, err)
	}
	v.t, v.width, v.bit = m.typ, m.width, m.bit
	return v, nil
}

// attrGoKind is the reflect.Kind of a type of Go's, whatever its name is.
const attrGoKind dwarf.Attr = 0x2900

// goKind is the kind of a type of Go's; Invalid for other languages' types.
func (f *frame) goKind(t ctype) reflect.Kind {
	if !f.languageOf(t).IsGo() {
		return reflect.Invalid
	}
	n, _ := t.entry.Int(attrGoKind)
	return reflect.Kind(max(0, n))
}

// attrGoEmbedded marks the embedded fields of Go's structures.
const attrGoEmbedded dwarf.Attr = 0x2903

// promoted finds a member of what Go embeds in a structure, or points to from it.
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
		if stride <= 0 && v.f.dimension(v.t.entry, v.t.dim+1) >= 0 {
			return v, fmt.Errorf("how large the rows of %s are is known when it runs alone: %w", v.t, fetch.ErrNoValue)
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
	out, err := v.recorded(name)
	if err == nil && !v.behind && v.f.languageOf(v.t).IsRust() {
		out.Owned = out.Owned || owning(out.Type)
	}
	if err == nil && v.f.work > maxWork {
		v.f.contents = nil // some may lack what was not looked into
		return out, errTooManyTypes
	}
	return out, err
}

func (v value) recorded(name string) (fetch.Variable, error) {
	v, err := v.unreference()
	if err != nil {
		return fetch.Variable{}, err
	}
	v.t = v.f.whole(v.t)
	out := fetch.Variable{Name: name, AtReturn: v.atReturn, Behind: v.behind}
	if v.t.kind == kindStruct {
		if ptr, length, ok := v.text(); ok {
			out.Owned = !v.behind && ownsText(v.t.entry.Name())
			out.Own, out.LenOwn = ptr.own, length.own
			return textVariable(out, ptr, length), nil
		}
	}
	if v.f.isEmpty(v.t) || v.f.hasNone(v.t) && v.f.inStack(v.p) && !v.behind { // behind a pointer there may be some
		out.Type, out.Chain = emptyType(v.t), fetch.Chain{Source: fetch.SourceImm}
		out.Type.Count = 0
		return out, nil
	}
	if to, ok := v.referred(); ok {
		return to.variable(name)
	}
	if v.width == 0 {
		if held, ok := v.contained(out); ok {
			return held, nil
		}
	}
	out.Pointer = v.t.kind == kindPointer
	if v.t.kind == kindPointer && v.f.isText(v.t) {
		at, err := v.p.value(8)
		if err != nil {
			return out, err
		}
		out.Chain, out.Own, out.Type = at.whole(), at.own, fetch.Type{Base: fetch.String, Size: 8}
		return out, nil
	}
	if v.t.kind == kindArray && v.p.kind == inMemory {
		if elem, _ := v.f.element(v.t); elem.kind == kindChar && elem.size == 1 {
			if v.t.count <= 0 {
				if n, ok := v.f.elements(v.t); ok {
					out.Own, out.LenOwn = v.p.sym.own, n.own
					return textVariable(out, v.p.sym, n), nil
				}
				if v.f.inStack(v.p) && !v.behind {
					return out, v.unbounded(name)
				}
			}
			out.Chain, out.Off = v.p.sym.chain()
			out.Own = v.p.sym.own
			out.InMemory, out.Type = true, fetch.Type{Base: fetch.String, Size: 8}
			out.Max = int(min(max(v.t.count, 0), 1<<30))
			return out, nil
		}
	}
	if v.t.kind == kindArray && v.t.count <= 0 {
		if counted, ok := v.counted(out); ok {
			return counted, nil
		}
	}
	out.Type = v.f.fieldType(v.t, v.width, v.bit, 0)
	if out.Type.Size == 0 && v.t.kind == kindArray && v.t.count <= 0 {
		return out, v.unbounded(name)
	}
	if out.Type.Size == 0 {
		return out, fmt.Errorf("values of type %s can't be recorded: ask for a part of it", v.t)
	}
	p := v.p
	if p.kind == inPieces {
		if q, perr := p.part(0, v.t.size); perr == nil && q.kind != inPieces {
			p = q
		} else if out.Type.Count != 0 || out.Type.Layout != nil && out.Type.Layout.Members != nil {
			return v.whole(out)
		} else if perr != nil {
			return out, perr
		} else {
			return out, errPieces
		}
	}
	switch {
	case p.kind == inMemory:
		out.InMemory = true
		out.Chain, out.Off = p.sym.chain()
		out.Own = p.sym.own
		if elem := out.Type.Elem(); out.Type.Count != 0 && elem.Size == 1 && v.t.kind == kindArray {
			out.Max = int(min(v.t.count, 1<<30)) // bytes that a definition may call a text
		}
	case v.t.kind != kindArray && out.Type.Count == 1 && int64(out.Type.Size) == v.t.size && out.Type.Layout != nil && p.kind == isValue && p.sym.src.Source != fetch.SourceXMM:
		// A structure in a register: one word, whose bytes are the members'.
		out.Type.Count = 0
		out.Chain, out.Own = p.sym.whole(), p.sym.own
	case out.Type.Count != 0:
		return v.whole(out)
	default:
		s, err := p.value(v.t.size)
		if err != nil {
			return out, err
		}
		out.Chain, out.Own = s.whole(), s.own
	}
	return out, nil
}

func textVariable(out fetch.Variable, ptr, length sym) fetch.Variable {
	n := length.whole()
	out.Chain, out.Len = ptr.whole(), &n
	out.Type = fetch.Type{Base: fetch.String, Size: 8}
	return out
}

// isText reports a pointer to characters. unsigned char * is one too, as many
// libraries' texts are; under another name (uint8_t) they are bytes.
func (f *frame) isText(t ctype) bool {
	if t.elem.IsZero() || t.stars > 0 {
		return false
	}
	e := f.resolve(t.elem)
	return e.size == 1 && (e.kind == kindChar || e.kind == kindUint && !e.alias && e.entry.Name() == "unsigned char")
}

// ownsText reports a type of texts whose destructor frees the bytes.
func ownsText(name string) bool {
	return name == "String" || name == "OsString" || name == "PathBuf" || strings.HasPrefix(name, "basic_string<")
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// text finds where a string of Go, Rust or C++ has its bytes and their number.
func (v value) text() (ptr, length sym, ok bool) {
	var data, count []string
	switch name := v.t.entry.Name(); {
	case name == "string" || v.f.goKind(v.t) == reflect.String || name == "&str" || name == "&mut str" || hasAnyPrefix(name, "basic_string_view<char,", "basic_string_view<char8_t,"):
		switch l := v.f.language(v.t.entry); {
		case l.IsGo():
			data, count = []string{"str"}, []string{"len"}
		case l.IsRust():
			data, count = []string{"data_ptr"}, []string{"length"}
		default:
			data, count = []string{"_M_str"}, []string{"_M_len"}
		}
	case hasAnyPrefix(name, "basic_string<char,", "basic_string<char8_t,"):
		data, count = []string{"_M_dataplus", "_M_p"}, []string{"_M_string_length"}
	case name == "String":
		data, count = []string{"vec", "buf"}, []string{"vec", "len"}
	case name == "OsString" || name == "PathBuf":
		if !v.f.language(v.t.entry).IsRust() {
			return sym{}, sym{}, false
		}
		data, count = []string{"inner", "inner", "buf"}, []string{"inner", "inner", "len"}
		if name == "PathBuf" { // an OsString
			data, count = append([]string{"inner"}, data...), append([]string{"inner"}, count...)
		}
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
