package vars

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"kprobe/fetch"
)

// variable returns the value in the form that a definition can record.
func (v value) variable(name string) (fetch.Variable, error) {
	out, err := v.recorded(name)
	if err == nil && !v.behind && v.f.languageOf(v.t).IsRust() {
		out.Owned = out.Owned || owning(out.Type)
	}
	if err == nil && v.f.work > maxWork {
		v.f.contents = nil // contents found before may be incomplete
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
	out := fetch.Variable{Name: name, AtReturn: v.atReturn, Behind: v.behind, ByEntry: v.byEntry}
	if v.t.kind == kindStruct {
		if ptr, length, ok := v.text(); ok {
			out.Owned = !v.behind && ownsText(v.t.entry.Name())
			out.Own, out.LenOwn = ptr.own, length.own
			return textVariable(out, ptr, length), nil
		}
	}
	if v.f.isEmpty(v.t) || v.f.hasNone(v.t) && v.f.inStack(v.p) && !v.behind { // a pointer may lead to an array that has elements
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
		return out, fmt.Errorf("values of type %s can't be recorded: fetch a part of it", v.t)
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
			out.Max = int(min(v.t.count, 1<<30)) // a definition may use these bytes as text
		}
	case v.t.kind != kindArray && out.Type.Count == 1 && int64(out.Type.Size) == v.t.size && out.Type.Layout != nil && p.kind == isValue && p.sym.src.Source != fetch.SourceXMM:
		// A structure in a register is one word, which has the members' bytes.
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

// isText reports whether a pointer leads to text. unsigned char * counts as text, because many
// libraries use it so. Under another name (uint8_t) it leads to bytes.
func (f *frame) isText(t ctype) bool {
	if t.elem.IsZero() || t.stars > 0 {
		return false
	}
	e := f.resolve(t.elem)
	return e.size == 1 && (e.kind == kindChar || e.kind == kindUint && !e.alias && e.entry.Name() == "unsigned char")
}

// ownsText reports whether a type holds a text that its destructor frees.
func ownsText(name string) bool {
	return name == "String" || name == "OsString" || name == "PathBuf" || strings.HasPrefix(name, "basic_string<")
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// text finds the address and the length of a string of Go, Rust or C++.
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
		if name == "PathBuf" { // it wraps an OsString
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

// firstPointer returns the member of a wrapper that holds its pointer.
func (v value) firstPointer() (value, bool) {
	for _, name := range [...]string{"inner", "ptr", "pointer", "__0", "data_ptr"} {
		if w, err := v.field(name); err == nil && (w.t.kind == kindStruct || w.t.kind == kindPointer) {
			return w, true
		}
	}
	return v, false
}
