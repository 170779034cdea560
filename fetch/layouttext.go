package fetch

import (
	"strconv"
	"unicode/utf8"
)

// character is a Char's value as text: a byte, or for wider ones (char32_t,
// Rust's char) the character in UTF-8.
func (t Type) character(v uint64) []byte {
	if t.Size == 1 {
		return []byte{byte(v)}
	}
	return utf8.AppendRune(nil, rune(min(v, utf8.MaxRune+1)))
}

// appendLayout appends a value as its layout says: enumerators by name, true
// and false, structures as {a=1,b=2}, arrays as {1,2}, and ... for what was not
// recorded. done is false when the layout says nothing of it.
func (t Type) appendLayout(dst []byte, v Value, sym Symbolizer) (out []byte, done bool) {
	l := t.Layout
	switch {
	case l.Members != nil:
		dst = append(dst, '{')
		sep := false
		for i := range min(len(l.Members), len(v.Elems)) {
			if !l.shown(i, &v) {
				continue
			}
			if sep {
				dst = append(dst, ',')
			}
			sep = true
			m := &l.Members[i]
			dst = append(dst, m.Name...)
			if t := m.Type.Layout; m.Case && t != nil && len(t.Members) == 0 && !t.More {
				continue // a variant without anything in it
			}
			if m.Name != "" {
				dst = append(dst, '=')
			}
			dst = AppendText(dst, l.Members[i].Type, v.Elems[i], sym)
		}
		if l.More && sep {
			dst = append(dst, ',')
		}
		if l.More {
			dst = append(dst, "..."...)
		}
		return append(dst, '}'), true
	case l.Text && t.Count != 0:
		dst = append(dst, '"')
		dst = AppendPlain(dst, v.Bytes)
		dst = append(dst, '"')
		if l.More && len(v.Bytes) == int(t.Count) {
			dst = append(dst, "..."...)
		}
		return dst, true
	case t.Count != 0:
		return dst, false
	case l.Bool:
		return strconv.AppendBool(dst, v.Int != 0), true
	}
	if name, ok := l.enumerator(v.Int); ok {
		return append(dst, name...), true
	}
	return l.appendFlags(dst, v.Int)
}

// appendLayoutJSON is appendLayout for JSON: structures are objects,
// enumerators strings, bools true and false. Members without a name are under
// "", which a structure has at most one of worth reading.
func (t Type) appendLayoutJSON(dst []byte, v Value, sym Symbolizer) (out []byte, done bool) {
	l := t.Layout
	switch {
	case l.Members != nil:
		open, end := byte('{'), byte('}')
		if l.Array {
			open, end = '[', ']'
		}
		dst = append(dst, open)
		sep := false
		for i := range min(len(l.Members), len(v.Elems)) {
			if !l.shown(i, &v) {
				continue
			}
			if sep {
				dst = append(dst, ',')
			}
			sep = true
			if !l.Array {
				dst = AppendJSONString(dst, []byte(l.Members[i].Name))
				dst = append(dst, ':')
			}
			dst = AppendJSON(dst, l.Members[i].Type, v.Elems[i], sym)
		}
		return append(dst, end), true
	case l.Text && t.Count != 0:
		return AppendJSONString(dst, v.Bytes), true
	case t.Count != 0:
		return dst, false
	case l.Bool:
		return strconv.AppendBool(dst, v.Int != 0), true
	}
	if name, ok := l.enumerator(v.Int); ok {
		return AppendJSONString(dst, []byte(name)), true
	}
	if flags, ok := l.appendFlags(nil, v.Int); ok {
		return AppendJSONString(dst, flags), true
	}
	return dst, false
}
