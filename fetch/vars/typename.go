package vars

import (
	"cmp"
	"debug/dwarf"
	"strings"

	"kprobe/symbols/debuginfo"
)

func (f *frame) structName(e debuginfo.Entry) string {
	switch name := e.Name(); {
	case !f.language(e).IsC():
		return name
	case e.Tag() == dwarf.TagUnionType:
		return "union " + name
	default:
		return "struct " + name
	}
}

func (f *frame) pointerName(e debuginfo.Entry, t ctype, mark string) string {
	if l := f.language(e); e.Name() != "" && !l.IsC() && !l.IsCXX() {
		return e.Name()
	}
	if f.depth > maxNested || t.elem.IsZero() {
		return "void " + mark
	}
	f.depth++
	elem := f.resolve(t.elem)
	f.depth--
	name := elem.name
	if elem.kind == kindFunc {
		result, params, _ := strings.Cut(name, "(")
		return result + "(" + mark + ")(" + params
	}
	if elem.kind == kindArray && !elem.alias { // int (*)[3]
		if i := strings.IndexByte(name, '['); i > 0 && !strings.Contains(name, "(*") {
			return name[:i] + " (" + mark + ")" + name[i:]
		}
	}
	if i := strings.Index(name, "*)"); i > 0 && !elem.alias && elem.kind == kindPointer && strings.Contains(name, "(*") {
		return name[:i+1] + mark + name[i+1:]
	}
	if n := len(name); n > 0 && (name[n-1] == '*' || name[n-1] == '&') {
		return name + mark
	}
	return name + " " + mark
}

// funcName writes a function's type as C does: int (char *, int).
func (f *frame) funcName(e debuginfo.Entry, t ctype) string {
	if t.name != "" || f.depth > maxNested {
		return cmp.Or(t.name, "? ()")
	}
	f.depth++
	defer func() { f.depth-- }()
	name, sep := "void (", ""
	if !t.elem.IsZero() {
		name = f.resolve(t.elem).name + " ("
	}
	for c := range e.Children() {
		r, ok := c.RefTo(dwarf.AttrType)
		switch {
		case c.Tag() == dwarf.TagUnspecifiedParameters:
			name += sep + "..."
		case c.Tag() == dwarf.TagFormalParameter && ok:
			name += sep + f.resolve(r).name
		default:
			continue
		}
		if sep = ", "; len(name) > maxTypeName {
			return name + sep + "...)"
		}
	}
	return name + ")"
}

// maxTypeName limits the names of types that are composed here.
const maxTypeName = 200
